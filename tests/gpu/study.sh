#!/usr/bin/env bash
# A study of a real encoder on a GPU machine without network: `tests/gpu/study.sh OUT SECONDS ENCODER [SETTING...]`, after
# tests/gpu/study_bundle.py has packed what it needs here and unpacked it into BUNDLE there. OUT gets study-ENCODER.tar.gz
# (scores, events, predictions, report, bundle) every half minute, so that a call that is cut off loses little, and the log.
# CORES=2 GPUS=0 rehearses on a CPU.
set -uo pipefail
cd "$(dirname "$0")/../.."
OUT=$(mkdir -p "${1:?where to write to}" && cd "$1" && pwd)
ENDS=$((SECONDS + ${2:?how many seconds}))
BUNDLE=$(realpath "${BUNDLE:-/tmp/gpu-study}")
ENCODER=$BUNDLE/${3:?which encoder of the bundle}
NAME=${STUDY:-align/two-cores}
RUNS=$BUNDLE/out LOG=$OUT/study-$3.log
PYTHON=${PYTHON:-python3} CORES=${CORES:-$(nproc)} GPUS=${GPUS:-1}
unset PYTHONDONTWRITEBYTECODE
export PYTHONPATH="$PWD:$BUNDLE/site" OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false MPLBACKEND=Agg
export RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=0 # data tasks see the GPU: the teacher's vectors are made there
export RAY_worker_niceness=0 # they make shards beside the pretrainings
[ "$GPUS" = 0 ] && SHARE=0 || SHARE=0.05
ARGS=("$NAME" --encoder "$ENCODER" --out "$RUNS" --processes "$((CORES > 4 ? CORES - 4 : 1))" --last "${LAST:-xnli}")
for setting in data.root="$BUNDLE/data" mlflow=off root="$BUNDLE/data" resources.cpus=1 resources.gpus=$SHARE \
  parallel.workers=1 parallel.zero_stage=0 parallel.gpus_per_worker="$GPUS" "${@:4}"; do ARGS+=(--set "$setting"); done

pack() { # what a report needs; no weights
  (cd "$RUNS" && tar -czf "$BUNDLE/packed.tar.gz" --exclude model --exclude tokenized --exclude '*.safetensors' --exclude '*.bin' --exclude '*.pt' \
    studies $(ls -d ./*/events.jsonl ./*/config.yaml ./*/manifest.json 2>/dev/null)) && mv "$BUNDLE/packed.tar.gz" "$OUT/study-$1.tar.gz"
}
mkdir -p "$RUNS"
(while sleep 30; do pack "$3" 2>/dev/null; done) &
trap 'kill '$! EXIT
timeout --signal INT --kill-after 10 $((ENDS - SECONDS - 40)) "$PYTHON" tests/gpu/study.py "${ARGS[@]}" >"$LOG" 2>&1
rc=$?
[ $rc = 0 ] || timeout 35 "$PYTHON" tests/gpu/study.py "${ARGS[@]}" --report-only >>"$LOG" 2>&1
pack "$3"
echo "study: exit $rc after $SECONDS s"
grep -E '^ *[0-9.]+ s ' "$LOG" | tail -60
tail -3 "$LOG"
exit $rc
