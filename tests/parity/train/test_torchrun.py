"""The command under torchrun: two processes without Ray take the steps that one process takes."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.data.conftest import prepare_here
from xalign_ray.config.load import load_recipe
from xalign_ray.demo.writer import write_demo
from xalign_ray.track.events import EVENT_LOG, read_events

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A recipe of four steps whose shards are there."""
    folder = tmp_path_factory.mktemp("torchrun")
    write_demo(folder / "demo", sentences=300, parallel_sentences=50, retrieval_pairs=10)
    given = [f"data.root={folder / 'demo'}", f"output={folder / 'runs'}", "data.tokenizer.vocab_size=1000"]
    given += ["train.steps=4", "train.global_batch_rows=8", "train.micro_batch_rows=8", "train.held_out_every_steps=2"]
    given += ["model.width=32", "model.feed_forward=64", 'track.mlflow="off"']
    prepare_here(load_recipe("tiny/align-mlm", given).config)
    return given


def pretrain(launcher: list[str], settings: list[str], out: Path) -> subprocess.CompletedProcess[str]:
    chosen = [word for setting in settings for word in ("--set", setting)]
    command = [*launcher, "-m", "xalign_ray", "pretrain", "tiny/align-mlm", "--no-ray", *chosen, "--out", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def steps(run: Path) -> list[tuple[int, int, float]]:
    found = [event for event in read_events(run / EVENT_LOG) if event["event"] == "step"]
    return [(event["step"], event["batch_hash"], event["metrics"]["train/loss"]) for event in found]


def test_two_processes_take_the_steps_of_one(settings: list[str], tmp_path: Path) -> None:
    alone = pretrain([sys.executable], settings, tmp_path / "alone")
    both = pretrain(TORCHRUN, settings, tmp_path / "both")
    assert (alone.returncode, both.returncode) == (0, 0), alone.stderr + both.stderr
    one, two = steps(tmp_path / "alone"), steps(tmp_path / "both")
    assert [step[:2] for step in one] == [step[:2] for step in two]
    assert len(one) == 4
    assert all(math.isclose(a[2], b[2], rel_tol=1e-4) for a, b in zip(one, two, strict=True))
    assert (tmp_path / "both" / "export" / "model.safetensors").is_file()
