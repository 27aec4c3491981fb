#!/usr/bin/env bash
# The first hour on a GPU, each part with its own time limit: `tests/gpu/run.sh OUT [PART...]`, by default all parts.
# Parts: install (offline, from the bundle beside it), right (tests), fast (bench), true (a study on prepared shards).
# REHEARSE=1 does the same on a CPU, with models of no size. OUT gets the logs, gpu.json, gpu.md and the runs' reports.
set -uo pipefail
cd "$(dirname "$0")/../.."
OUT=$(mkdir -p "${1:?where to write to}" && cd "$1" && pwd)
PARTS=${*:2}
BUNDLE=$(realpath -m "${BUNDLE:-build/gpu-bundle}")
PYTHON=${PYTHON:-python3}
VENV=$(realpath -m "${VENV:-build/gpu-venv}")
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4} HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
if [ "${REHEARSE:-}" ]; then
  export XALIGN_GPU_TESTS=cpu OMP_NUM_THREADS=1
  TINY="--device cpu --tiny" GPUS=0 MODEL="--set train.max_steps=20 --set train.schedule.warmup_steps=5"
else
  TINY="" GPUS=1
  MODEL="--set model.num_hidden_layers=8 --set model.hidden_size=512 --set model.num_attention_heads=8 --set model.intermediate_size=2048
    --set train.max_steps=${STEPS:-10000} --set train.schedule.warmup_steps=1000 --set train.optimizer.learning_rate=5e-4
    --set train.global_batch_size=256 --set train.per_device_batch_size=256"
fi

install() { # torch and what it brings come from the machine's own Python
  local wheels="$BUNDLE/wheels"
  [ -d "$wheels" ] || { cat "$BUNDLE"/part.* | tar -x -C "$BUNDLE" || return; }
  [ -x "$VENV/bin/python" ] || "$PYTHON" -m venv --system-site-packages "$VENV" || return
  "$VENV/bin/pip" install -q --no-index --find-links "$wheels" --no-deps "$wheels"/*.whl &&
    "$VENV/bin/python" -c 'import torch, xalign_ray.train.loop; print("torch", torch.__version__, torch.cuda.is_available())'
}
right() { "$VENV/bin/python" -m pytest -q -m gpu --durations=5 tests/gpu; }
fast() { "$VENV/bin/python" tests/gpu/bench.py "$OUT" $TINY; }
true_() { # mlm against align-mlm on English and the language derived from it, at ALIGN-MLM's own size
  local xalign=$VENV/bin/xalign recipe
  cd "$BUNDLE" || return
  for recipe in mlm align-mlm; do
    "$xalign" pretrain "derived/$recipe" --no-ray --out "runs/$recipe" --set data.root=data --set data.tokenizer.path=data/tokenizer --set output=runs --set track.mlflow=off \
      --set parallel.workers=1 --set parallel.gpus_per_worker="$GPUS" --set train.bf16=true $MODEL &&
      "$xalign" evaluate "runs/$recipe" --task alignment --out "$OUT/$recipe" &&
      cp "runs/$recipe/events.jsonl" "$OUT/$recipe.jsonl" || return
  done
}

declare -A LIMIT=([install]=300 [right]=900 [fast]=900 [true]=1800)
failed=0
for part in ${PARTS:-install right fast true}; do
  call=$part; [ "$part" = true ] && call=true_
  export -f install right fast true_; export OUT BUNDLE PYTHON VENV TINY GPUS MODEL
  began=$SECONDS
  timeout "${LIMIT[$part]}" bash -c "$call" >"$OUT/$part.log" 2>&1
  rc=$?
  [ $rc = 0 ] || failed=1
  echo "$part: exit $rc after $((SECONDS - began)) s, $OUT/$part.log"; tail -3 "$OUT/$part.log"
done
exit $failed
