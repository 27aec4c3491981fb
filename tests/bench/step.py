"""The training step against the Trainer and a plain torch loop; memory of the head; Ray's share; the first step."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from objectives import SIZE, TEXT
from records import record

from xalign_ray import pretraining
from xalign_ray.config.load import load_recipe
from xalign_ray.track.events import EVENT_LOG, read_events

ROUNDS = 3  # now and then a process is a third slower than the others: the median of two is no median
RAY_ROUNDS, RAY_STEPS, RAY_SETTLED = 3, 60, 20  # in the first steps the driver still imports export's libraries
VOCABULARIES = {30_000: (32, 2.4), 119_000: (8, 4.5), 250_000: (8, 5.5)}  # rows of a batch, target
ARMS = Path(__file__).parent / "step_arms.py"


def measure(rounds: int = ROUNDS, device: str = "cpu") -> list[dict[str, Any]]:
    """Every ratio, in interleaved rounds of fresh processes."""
    on = {"device": device}
    arms: dict[str, dict[str, Any]] = {}
    for vocab, (rows, _) in VOCABULARIES.items():
        arms |= {f"{name} {vocab}": {"name": name, "vocab": vocab, "rows": rows} for name in ("trainer", "ours")}
    small = {"vocab": 30_000, "rows": 32}
    arms |= {f"{name} padded": {"name": name, "fill": 0.3, **small} for name in ("trainer", "ours")}
    arms |= {"plain": {"name": "plain", **small}, "zero 2": {"name": "ours", "stage": 2, **small}}
    found: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, arm in arms.items():
            found[name].append(run_arm({**arm, **on})["median"])
    seconds = {name: statistics.median(one) for name, one in found.items()}
    memory = run_arm({"name": "head_memory", "vocab": 250_000, "rows": 8})["found"]
    how = (
        f"seconds of a step, median of {rounds} interleaved rounds of fresh processes, one core, fp32, 4 layers of "
        "256, 128 tokens a row, 15 % labels"
    )
    plain = seconds["plain"]
    return [
        *(
            record(f"train/trainer_ratio/{vocab}", seconds[f"trainer {vocab}"] / seconds[f"ours {vocab}"], target,
                   f"against transformers' Trainer with BertForMaskedLM, {rows} rows, {_ms(seconds, vocab)}; {how}")
            for vocab, (rows, target) in VOCABULARIES.items()
        ),
        record("train/padded_ratio", seconds["trainer padded"] / seconds["ours padded"], 8.0,
               f"packed rows against the Trainer's padded ones, 30 % full, 32 examples, V 30,000; {how}"),
        record("train/plain_ratio/zero_0", plain / seconds["ours 30000"], 0.97,
               f"our loop against a plain torch loop around the same losses, V 30,000, 32 rows; {how}"),
        record("train/plain_ratio/zero_2", plain / seconds["zero 2"], 0.90, f"the same at ZeRO stage 2; {how}"),
        record("train/head_memory_ratio", memory[1] / memory[0], 0.15,
               f"extra memory of head, loss and gradients, V 250,000, 1,024 positions: {memory[1]:.0f} MB against "
               f"{memory[0]:.0f} MB for the logits of all of them", "lower"),
        *_under_ray(),
    ]  # fmt: skip


def run_arm(arm: dict[str, Any]) -> dict[str, Any]:
    """What `step_arms.py` says of one."""
    done = subprocess.run(
        [sys.executable, str(ARMS), json.dumps(arm)], check=True, capture_output=True, text=True, env=_one_core()
    )
    return json.loads(done.stdout.splitlines()[-1])


def _ms(seconds: dict[str, float], vocab: int) -> str:
    return f"{seconds[f'trainer {vocab}'] * 1e3:.0f} ms against {seconds[f'ours {vocab}'] * 1e3:.0f} ms"


def _one_core() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _under_ray() -> list[dict[str, Any]]:
    """The same recipe with and without Ray, and how long the first step takes to come."""
    steps: dict[str, list[float]] = {"--no-ray": [], "": []}
    first = []
    with tempfile.TemporaryDirectory() as folder:
        settings = [*SIZE, f"streams=[{TEXT}]", "objectives=[{kind: masked_lm}]", f"output={folder}"]
        settings.append(f"train.max_steps={RAY_STEPS}")
        pretraining.prepare(load_recipe("tiny/all", settings))
        for number in range(RAY_ROUNDS):
            for flag, found in steps.items():
                out = Path(folder) / f"run{flag}{number}"
                chosen = [word for setting in settings for word in ("--set", setting)]
                command = [sys.executable, "-m", "xalign_ray", "pretrain", "tiny/all", *chosen, "--out", str(out)]
                began = time.time()
                subprocess.run([*command, *filter(None, [flag])], check=True, capture_output=True, env=_one_core())
                events = [event for event in read_events(out / EVENT_LOG) if event["event"] == "step"]
                found.append(statistics.median(event["metrics"]["train/step_ms"] for event in events[RAY_SETTLED:]))
                if not flag:
                    first.append(events[0]["time"] - began)
    without, with_ray = (statistics.median(found) for found in steps.values())
    how = f"median of {RAY_ROUNDS} runs of {RAY_STEPS} steps each, 4 layers of 256, 16 rows of 128 tokens, one worker"
    return [
        record("train/ray_ratio", without / with_ray, 0.97, f"the loop in a process against it under Ray Train; {how}"),
        record("train/first_step_s", statistics.median(first), 12, f"from the command to the end of step 1, warm: "
               f"Ray starts and the shards are there; {how}", "lower"),
    ]  # fmt: skip
