"""The newest checkpoint is that of the largest step, not the last one by name."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
import torch

from xalign_ray.errors import CheckpointError
from xalign_ray.train import checkpoint
from xalign_ray.train.checkpoint import KEYS, Checkpoint, consolidate, newest
from xalign_ray.work.artifacts import write_manifest
from xalign_ray.work.run_folder import RunFolder


def write_checkpoint(run: Path, step: int) -> None:
    folder = RunFolder(run).checkpoint(step)
    folder.mkdir(parents=True)
    write_manifest(folder, dict.fromkeys(KEYS, 0) | {"step": step, "fingerprint": "f", "files": {}})


def test_checkpoints_of_a_million_steps_are_newer_than_those_before(tmp_path: Path) -> None:
    for step in (999_999, 1_000_000, 20, 1_000_010):
        write_checkpoint(tmp_path, step)
    found, notes = newest(tmp_path, "f")
    assert found is not None
    assert (found.step, notes) == (1_000_010, [])
    second, _ = newest(tmp_path, "f", step=999_999)
    assert second is not None
    assert second.step == 999_999


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 20)
    with pytest.raises(CheckpointError, match=r"step_000020 was written by another recipe: its fingerprint is f, this"):
        newest(tmp_path, "g")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "import os; os.kill(os.getpid(), 9)",
            "its process was killed (signal 9), as the system does for want of memory.",
        ),
        ("raise SystemExit(3)", "exit 3."),
        ("raise OSError('the disk is full')", "OSError: the disk is full"),
        ("", None),
    ],
)
def test_a_conversion_that_was_killed_has_not_succeeded(
    code: str, said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python").write_text(f"#!/bin/sh\nexec {sys.executable} -c {shlex.quote(code)}\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert checkpoint._convert(Checkpoint(tmp_path, {}), tmp_path / "converted") == said


def test_whole_weights_are_read_by_what_the_process_may_train_on_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepSpeed stays for good with the device that it is loaded for first."""
    loaded: list[bool] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(checkpoint, "load_deepspeed", loaded.append)
    monkeypatch.setattr(checkpoint, "join_weights", lambda *_: {"weight": torch.ones(2, dtype=torch.bfloat16)})
    state = consolidate(Checkpoint(tmp_path, {"zero_stage": 2}, trusted=True))
    assert (loaded, state["weight"].dtype) == ([True], torch.float32)
