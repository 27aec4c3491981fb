"""The newest checkpoint is that of the largest step, not the last one by name."""

from __future__ import annotations

import shlex
import sys
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from xalign_ray.errors import CheckpointError
from xalign_ray.train import checkpoint
from xalign_ray.train.checkpoint import KEYS, Checkpoint, newest
from xalign_ray.work.artifacts import seal, write_manifest
from xalign_ray.work.run_folder import RunFolder


def write_checkpoint(run: Path, step: int) -> None:
    folder = RunFolder(run).checkpoint(step)
    folder.mkdir(parents=True)
    write_manifest(folder, seal(dict.fromkeys(KEYS, 0) | {"step": step, "fingerprint": "f", "files": {}}))


def test_checkpoints_of_a_million_steps_are_newer_than_those_before(tmp_path: Path) -> None:
    for step in (999_999, 1_000_000, 20, 1_000_010):
        write_checkpoint(tmp_path, step)
    found, notes = newest(tmp_path, "f")
    assert found is not None
    assert (found.step, notes) == (1_000_010, [])
    second, _ = newest(tmp_path, "f", step=999_999)
    assert second is not None
    assert second.step == 999_999


def test_a_changed_manifest_of_a_checkpoint_is_passed_over(tmp_path: Path) -> None:
    for step in (20, 40):
        write_checkpoint(tmp_path, step)
    path = RunFolder(tmp_path).checkpoint(40) / "manifest.json"
    path.write_text(path.read_text().replace('"tokens": 0', '"tokens": 1'))
    found, notes = newest(tmp_path, "f")
    assert found is not None
    assert (found.step, notes) == (20, [f"{path} is damaged: its hash is not that of its fields."])


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


@pytest.mark.parametrize("rank", [0, 1])
def test_rank_zero_alone_asks_the_disk_how_large_a_checkpoint_is(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers: Any = SimpleNamespace(rank=rank, size=2, gather=lambda value: [value, value])
    config: Any = SimpleNamespace(
        checkpoint=SimpleNamespace(save_total_limit=2), parallel=SimpleNamespace(zero_stage=1)
    )
    saved, written, asked = checkpoint.Checkpoints(tmp_path, "f", config, workers, trust=False), Future(), []
    written.set_result({tmp_path / "writing" / "a": "hash"})
    saved._flight = checkpoint._Flight(5, tmp_path / "writing", {"tokens": 1}, written, 0.0, 0.0)
    monkeypatch.setattr(checkpoint, "put_in_place", lambda *_: write_checkpoint(tmp_path, 5))
    monkeypatch.setattr(Path, "rglob", lambda self, pattern: asked.append(self) or self.glob(pattern))
    step, folder, cost = saved.publish()
    saved.close()
    assert (step, folder) == (5, RunFolder(tmp_path).checkpoint(5))
    assert asked == [folder] * (1 - rank)
    assert (cost["checkpoint/size_mb"] > 0) == (rank == 0)
