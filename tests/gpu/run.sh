#!/usr/bin/env bash
# The first hour on a GPU in calls of some minutes: `tests/gpu/run.sh OUT MINUTES [PART...]`, by default all parts.
# Parts: install (offline, from the bundle), ops (single operations), right (tests), fast (bench), true (a study on prepared
# shards), and where it is asked for, two (two GPUs against one, two.md). Each part gets what is left of the minutes. OUT gets gpu.json, gpu.md, ops.md, junit.xml and logs.tar.gz with the rest.
# REHEARSE=1 does the same on a CPU, with models of no size.
set -uo pipefail
cd "$(dirname "$0")/../.."
OUT=$(mkdir -p "${1:?where to write to}" && cd "$1" && pwd)
ENDS=$((SECONDS + ${2:?how many minutes} * 60))
PARTS=${*:3}
LOGS=${LOGS:-$(mktemp -d)}
BUNDLE=$(realpath -m "${BUNDLE:-build/gpu-bundle}")
SITE=$(realpath -m "${SITE:-build/gpu-site}")
PYTHON=${PYTHON:-python3} # the one that holds torch with CUDA
export PYTHONPATH="$PWD:$SITE" OMP_NUM_THREADS=${OMP_NUM_THREADS:-4} HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
if [ "${REHEARSE:-}" ]; then
  export XALIGN_GPU_TESTS=cpu OMP_NUM_THREADS=1
  TINY="--device cpu --tiny" GPUS=0 MODEL="--set train.max_steps=20 --set train.schedule.warmup_steps=5"
else
  TINY="" GPUS=1
  MODEL="--set model.num_hidden_layers=8 --set model.hidden_size=512 --set model.num_attention_heads=8 --set model.intermediate_size=2048
    --set train.max_steps=${STEPS:-10000} --set train.schedule.warmup_steps=1000 --set train.optimizer.learning_rate=5e-4
    --set train.global_batch_size=256 --set train.per_device_batch_size=256"
fi

install() { # beside the machine's own packages, before them on the path
  "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$SITE" "$BUNDLE"/wheels/*.whl
  "$PYTHON" -c 'import torch, transformers, xalign_ray.train.loop; print("torch", torch.__version__, torch.cuda.is_available(), "transformers", transformers.__version__)'
}
ops() { "$PYTHON" tests/gpu/ops.py "$OUT" $TINY; }
right() { # one GPU holds six small trainings at a time
  "$PYTHON" -m pytest -q -m gpu -n "${JOBS:-6}" --dist load --durations=10 -o cache_dir="$LOGS/cache" --junitxml "$OUT/junit.xml" ${TESTS:-tests/gpu}
}
fast() { "$PYTHON" tests/gpu/bench.py "$OUT" --seconds $((LEFT - 15)) $TINY; }
two() { "$PYTHON" tests/gpu/two.py "$OUT" $TINY; }
true_() { # mlm against align-mlm on English and the language derived from it, at ALIGN-MLM's own size
  local recipe xalign="$PYTHON -m xalign_ray"
  cd "$BUNDLE" || return
  [ -d data ] || { echo "the bundle was made without TEXT: there is nothing to train on"; return; }
  for recipe in mlm align-mlm; do
    $xalign pretrain "derived/$recipe" --no-ray --out "runs/$recipe" --set data.root=data --set data.tokenizer.path=data/tokenizer --set output=runs --set track.mlflow=off \
      --set parallel.workers=1 --set parallel.gpus_per_worker="$GPUS" --set train.bf16=true $MODEL &&
      $xalign evaluate "runs/$recipe" --task alignment --out "$LOGS/$recipe" &&
      cp "runs/$recipe/events.jsonl" "$LOGS/$recipe.jsonl" || return
  done
}

failed=0
for part in ${PARTS:-install ops right fast true}; do
  LEFT=$((ENDS - SECONDS))
  [ $LEFT -gt 20 ] || { echo "$part: no time left"; failed=1; continue; }
  call=$part; [ "$part" = true ] && call=true_
  export -f install ops right fast two true_; export OUT LOGS BUNDLE SITE PYTHON TINY GPUS MODEL LEFT
  began=$SECONDS
  timeout --signal INT --kill-after 10 "$LEFT" bash -c "$call" >"$LOGS/$part.log" 2>&1
  rc=$?
  [ $rc = 0 ] || failed=1
  echo "$part: exit $rc after $((SECONDS - began)) s"; tail -"${TAIL:-12}" "$LOGS/$part.log"
  tar -czf "$OUT/logs.tar.gz" --exclude cache -C "$LOGS" .
done
exit $failed
