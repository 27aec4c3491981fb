"""The newest checkpoint is that of the largest step, not the last one by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from xalign_ray.errors import CheckpointError
from xalign_ray.train.checkpoint import KEYS, newest
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
