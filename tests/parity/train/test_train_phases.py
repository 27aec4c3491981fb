"""A run whose losses, mask rate and shares of languages change, killed where they do, has the rows of the calm run."""

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

PHASES = (
    "sampling.alpha=[[10, 0.7], [11, 0.5], [19, 0.5], [20, 0.3]]",
    "masking.mlm_probability=[[10, 0.3], [11, 0.15], [19, 0.15], [20, 0.1]]",
    "objectives.1.weight=[[19, 0], [20, 10]]",
    "train.schedule={warmup_steps: 4, decay_steps: 8, decay_type: 1-sqrt, min_lr_ratio: 0.02}",
    "train.max_steps=28",
)
STEPS = 28
# Inside the first phase, before the first step of the second, after it, twice before the first of the third, inside it.
KILLED_BEFORE = (3, 11, 12, 20, 20, 24)
PATIENCE_S = 300


def settings_of(folder: Path) -> list[str]:
    return [
        *(*PHASES, "track.mlflow=off", "model.hidden_size=32", "model.intermediate_size=64", "parallel.workers=1"),
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


def pretrain_apart(settings: list[str], out: Path, killed_before: int | None = None) -> int | None:
    """The exit code of a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.parity.train.warm"])
    process = context.Process(target=pretrain, args=(settings, out, killed_before))
    process.start()
    process.join(PATIENCE_S)
    return process.exitcode


def steps_of(run: Path) -> dict[int, dict[str, Any]]:
    """Of each step along the surviving lineage, its hash and all that does not depend on the clock."""
    timed = ("_ms", "_s", "_mb", "tflops")
    return {
        event["step"]: {name: value for name, value in event["metrics"].items() if not name.endswith(timed)}
        | {"batch_hash": event["batch_hash"]}
        for event in read_events(run / EVENT_LOG)
        if event["event"] == "step"
    }


def test_a_run_of_three_phases_killed_six_times_is_the_calm_run(tmp_path: Path) -> None:
    copy_demo(tmp_path / "demo")
    settings = settings_of(tmp_path)
    prepare_here(load_recipe("tiny/stages", settings).config)
    assert pretrain_apart(settings, tmp_path / "calm") == 0
    for step in KILLED_BEFORE:
        assert pretrain_apart(settings, tmp_path / "killed", step) == -signal.SIGKILL, step
    assert pretrain_apart(settings, tmp_path / "killed") == 0
    calm, killed = steps_of(tmp_path / "calm"), steps_of(tmp_path / "killed")
    assert list(calm) == list(range(1, STEPS + 1))
    assert killed == calm
    assert ["train/loss_dictionary_alignment" in calm[step] for step in (20, 21)] == [False, True]
    starts = [e["step"] for e in read_events(tmp_path / "killed" / EVENT_LOG, surviving=False) if e["event"] == "start"]
    assert len(starts) == len(KILLED_BEFORE) + 1
    weights = [(tmp_path / name / "export" / "model.safetensors").read_bytes() for name in ("calm", "killed")]
    assert weights[0] == weights[1]


def test_at_zero_stage_3_a_loss_without_weight_is_computed_all_the_same(tmp_path: Path) -> None:
    copy_demo(tmp_path / "demo")
    more = ["parallel.zero_stage=3", "train.max_steps=4", "objectives.1.weight=[[2, 0], [3, 10]]"]
    settings = [*settings_of(tmp_path), *more]
    prepare_here(load_recipe("tiny/stages", settings).config)
    assert pretrain_apart(settings, tmp_path / "run") == 0
    taken = steps_of(tmp_path / "run").values()
    assert ["train/loss_dictionary_alignment" in metrics for metrics in taken] == [True] * 4
    assert [metrics["train/loss"] == metrics["train/loss_masked_lm"] for metrics in taken] == [True] * 3 + [False]
