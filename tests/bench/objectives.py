"""What each objective costs: time of a step relative to MLM, tokens a second, memory; every round a fresh process."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xalign_ray import pretraining
from xalign_ray.config.load import load_recipe
from xalign_ray.track.events import EVENT_LOG, read_events

ROUNDS, STEPS, SETTLED = 4, 30, 5  # steps before SETTLED fill caches and are left out
TEXT, PAIRS, LABELS = "{kind: masked_text}", "{kind: masked_pairs}", "{kind: code_switched_labels}"
ALIGNED, CONTRASTED, COPY = "{kind: aligned_pairs}", "{kind: contrasted_pairs}", "{kind: code_switched_copy}"
ALIGN, EXCHANGE = "{kind: dictionary_alignment}", "{kind: word_exchange}"
MOMENTUM = "{kind: momentum_contrast, queue_size: 4096}"
METHODS: dict[str, tuple[str, str, tuple[str, ...]]] = {  # streams, losses beside masked_lm, other settings
    "mlm": (TEXT, "", ()),
    "xlm": (f"{TEXT}, {PAIRS}", "", ()),
    "dict-mlm-50": (LABELS, "", ("model.conditioned_head=true",)),
    "dict-tlm": (COPY, "", ("data.reserve_fraction=0.5",)),
    "align-mlm": (TEXT, ALIGN, ()),
    "weam": (ALIGNED, EXCHANGE, ()),
    "ppa": (CONTRASTED, MOMENTUM, ()),
    "sentence-contrast": (CONTRASTED, "{kind: sentence_contrast}", ()),
    "all": (
        ", ".join((TEXT, LABELS, PAIRS, ALIGNED, CONTRASTED)),
        ", ".join((ALIGN, EXCHANGE, MOMENTUM)),
        (),
    ),
}
TARGETS = dict.fromkeys(("dict-mlm-50", "align-mlm", "weam", "xlm"), 1.05) | {
    "ppa": 2.6,
    "sentence-contrast": 2.2,
}
SIZE = [  # a small encoder that is not all overhead
    "model.num_hidden_layers=4", "model.hidden_size=256", "model.num_attention_heads=4", "model.intermediate_size=1024",
    "data.max_seq_length=128", "train.global_batch_size=16", "train.per_device_batch_size=16", "train.eval_steps=0",
    "parallel.workers=1", "checkpoint.save_steps=1000000", 'track.mlflow="off"', f"train.max_steps={STEPS}",
]  # fmt: skip


def measure(methods: Sequence[str] = tuple(METHODS), rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """One record of step time and one of memory for each method, of its quickest round of several interleaved ones.

    A shared machine is slow for minutes at a time, and a method's rounds are some minutes apart: what was quickest was
    disturbed least. The median of four rounds has put one method 0.92 and 1.18 times mlm on two passes.
    """
    found: dict[str, list[dict[str, float]]] = {method: [] for method in methods}
    with tempfile.TemporaryDirectory() as folder:
        for method in methods:
            pretraining.prepare(load_recipe("tiny/all", _settings(method, Path(folder))))
        for number in range(rounds):
            for method in methods:
                found[method].append(_run(method, Path(folder), number))
    quickest = {method: min(runs, key=lambda run: run["train/step_ms"]) for method, runs in found.items()}
    return [record for method in methods for record in _records(method, quickest[method], quickest["mlm"])]


def _settings(method: str, folder: Path) -> list[str]:
    streams, losses, others = METHODS[method]
    chosen = [f"streams=[{streams}]", f"objectives=[{{kind: masked_lm}}{', ' if losses else ''}{losses}]"]
    return [*SIZE, f"output={folder}", *chosen, *others]


def _run(method: str, folder: Path, number: int) -> dict[str, float]:
    """The medians over the settled steps of one training in a process of its own."""
    out = folder / f"{method}-{number}"
    chosen = [word for setting in _settings(method, folder) for word in ("--set", setting)]
    command = [sys.executable, "-m", "xalign_ray", "pretrain", "tiny/all", "--no-ray", *chosen, "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    steps = [event["metrics"] for event in read_events(out / EVENT_LOG) if event["event"] == "step"][SETTLED:]
    return {
        key: statistics.median(step[key] for step in steps)
        for key in ("train/step_ms", "train/tokens_per_s", "train/peak_memory_mb")
    }


def _records(method: str, own: dict[str, float], mlm: dict[str, float]) -> list[dict[str, Any]]:
    how = (
        f"median step of the quickest of {ROUNDS} fresh processes of {STEPS} steps, one worker, ZeRO 2, fp32, "
        f"4 layers of 256, 16 rows of 128 tokens; {own['train/step_ms']:.0f} ms a step, "
        f"{own['train/tokens_per_s']:,.0f} tokens/s"
    )
    return [
        {
            "name": f"train/step_time_ratio/{method}",
            "value": round(own["train/step_ms"] / mlm["train/step_ms"], 3),
            "target": TARGETS.get(method),
            "better": "lower",
            "how": how,
        },
        {
            "name": f"train/peak_memory_mb/{method}",
            "value": round(own["train/peak_memory_mb"]),
            "target": None,
            "better": "lower",
            "how": "peak resident memory of the training process",
        },
    ]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(), indent=1) + "\n")
