"""How long a trainer waits for its data: share of the step time of short real runs, by their own event logs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from corpus import Material, make_config, prepare_here, write_round
from records import record

from xalign_ray.config.load import load_recipe
from xalign_ray.track.events import EVENT_LOG, read_events

RUNS, STEPS, SETTLED = 2, 300, 48  # steps before SETTLED fill the feed and are left out
MAX_MEGABYTES = 4
RECIPE = "tiny/dict-mlm-50"  # the quickstart's model and batch


def measure(material: Material) -> list[dict[str, Any]]:
    """One record for the feed on Ray, one for the thread of `--no-ray`."""
    folder = material.folder / "waiting"
    folder.mkdir()
    megabytes = min(material.megabytes, MAX_MEGABYTES)
    for number in range(2):
        write_round(material, folder, number, megabytes)
    own = load_recipe(RECIPE).config.data
    kept = {name: getattr(own, name) for name in ("tokenizer", "max_seq_length", "example")}
    data = make_config(material, folder, 2).data.model_copy(update=kept)
    settings = [
        f"output={folder / 'out'}", f"data={data.model_dump_json()}", f"train.max_steps={STEPS}",
        "train.eval_steps=0", "checkpoint.save_steps=1000000", 'track.mlflow="off"',
    ]  # fmt: skip
    prepare_here(load_recipe(RECIPE, settings).config)
    how = f"{RUNS} runs of {STEPS} steps of {RECIPE}'s model, the first {SETTLED} left out, {material.where}"
    kinds = {
        "ray": ("2 workers, feed by Ray Data", []),
        "no_ray": ("1 process, feed by a thread", ["--no-ray", "--set", "parallel.workers=1"]),
    }
    records = []
    for kind, (what, options) in kinds.items():
        shares = [_run(settings, folder / f"{kind}-{number}", options) for number in range(RUNS)]
        target = 0.02 if kind == "ray" else None
        told = f"data_wait_ms over step_ms, {what}; {how}"
        records.append(record(f"train/data_wait_share/{kind}", sum(shares) / RUNS, target, told, "lower"))
    return records


def _run(settings: list[str], out: Path, options: list[str]) -> float:
    """The share in a training in a process of its own."""
    chosen = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "xalign_ray", "pretrain", RECIPE, *chosen, *options, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    steps = [event["metrics"] for event in read_events(out / EVENT_LOG) if event["event"] == "step"][SETTLED:]
    return sum(step["train/data_wait_ms"] for step in steps) / sum(step["train/step_ms"] for step in steps)
