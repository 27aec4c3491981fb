"""A run of three stages, killed between and inside them: the same rows and losses as the calm run."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.ray.small import copy_demo
from tests.unit.conftest import prepare_here
from xalign_ray import pretraining
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.shards.prepared import Prepared
from xalign_ray.track.events import EVENT_LOG, read_events

STAGES = (
    "stages.0.train={max_steps: 11, global_batch_size: 12, per_device_batch_size: 12, schedule: {warmup_steps: 4}}",
    "stages.1.train={max_steps: 9, schedule: {decay_steps: 0}}",
    "stages.2.train={max_steps: 8, schedule: {decay_type: 1-sqrt, min_lr_ratio: 0.02}}",
)
STEPS = 11 + 9 + 8
# Inside the first stage, before the first step of the second, after it, twice before the first of the third, inside it.
KILLED_BEFORE = (3, 11, 12, 20, 20, 24)
PATIENCE_S = 300


def settings_of(folder: Path) -> list[str]:
    return [
        *(*STAGES, "track.mlflow=off", "model.hidden_size=32", "model.intermediate_size=64", "parallel.workers=1"),
        *(
            "train.global_batch_size=8",
            "train.per_device_batch_size=8",
            "train.eval_steps=0",
            "checkpoint.save_steps=3",
        ),
        *(f"data.root={folder}/demo", f"output={folder}/runs", "data.tokenizer.vocab_size=600"),
    ]


def pretrain(settings: list[str], out: Path, killed_before: int | None) -> None:
    """In a process of its own, which kills itself before it is given the rows of a step."""
    given = pretraining.open_local

    def open_local(prepared: Prepared, config: RunConfig, first: int, rank: int) -> Iterator[dict[str, np.ndarray]]:
        for step, batch in enumerate(given(prepared, config, first, rank), first):
            if step == killed_before:
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    pretraining.open_local = open_local  # pyright: ignore[reportAttributeAccessIssue]
    pretraining.pretrain(load_recipe("tiny/stages", settings), out=out, local=True)


def steps_of(run: Path) -> dict[int, dict[str, Any]]:
    """Of each step along the surviving lineage, its hash and all that does not depend on the clock."""
    timed = ("_ms", "_s", "_mb", "tflops")
    return {
        event["step"]: {name: value for name, value in event["metrics"].items() if not name.endswith(timed)}
        | {"batch_hash": event["batch_hash"]}
        for event in read_events(run / EVENT_LOG)
        if event["event"] == "step"
    }


def test_a_run_of_three_stages_killed_six_times_is_the_calm_run(tmp_path: Path) -> None:
    copy_demo(tmp_path / "demo")
    settings = settings_of(tmp_path)
    recipe = load_recipe("tiny/stages", settings)
    prepare_here(recipe.config)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.parity.train.warm"])

    def run(out: Path, killed_before: int | None) -> int | None:
        process = context.Process(target=pretrain, args=(settings, out, killed_before))
        process.start()
        process.join(PATIENCE_S)
        return process.exitcode

    assert run(tmp_path / "calm", None) == 0
    for step in KILLED_BEFORE:
        assert run(tmp_path / "killed", step) == -signal.SIGKILL, step
    assert run(tmp_path / "killed", None) == 0
    calm, killed = steps_of(tmp_path / "calm"), steps_of(tmp_path / "killed")
    assert list(calm) == list(range(1, STEPS + 1))
    assert killed == calm
    assert [calm[step]["train/stage"] for step in (1, 11, 12, 20, 21, 28)] == [1, 1, 2, 2, 3, 3]
    assert ["train/loss_dictionary_alignment" in calm[step] for step in (20, 21)] == [False, True]
    starts = [e["step"] for e in read_events(tmp_path / "killed" / EVENT_LOG, surviving=False) if e["event"] == "start"]
    assert len(starts) == len(KILLED_BEFORE) + 1
    weights = [(tmp_path / name / "export" / "model.safetensors").read_bytes() for name in ("calm", "killed")]
    assert weights[0] == weights[1]
    told = [event for event in read_events(tmp_path / "calm" / EVENT_LOG) if event["event"] == "stage"]
    assert [(event["name"], event["step"], event["steps"]) for event in told] == [
        ("start", 0, 11), ("longer", 11, 9), ("decay", 20, 8),
    ]  # fmt: skip
