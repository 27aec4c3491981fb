"""The checkpoint of a given step is found among those kept, and no other in its place."""

from __future__ import annotations

from pathlib import Path

from tests.parity.train import synthetic
from tests.parity.train.pool import Pool
from xalign_ray.train.checkpoint import newest


def train(workers, folder: Path) -> None:
    config = synthetic.config(parallel__workers=1, checkpoint__save_steps=2, checkpoint__save_total_limit=3)
    synthetic.run(config, folder, workers)


def test_a_checkpoint_is_found_by_its_step_and_one_that_was_not_kept_is_none(one: Pool, tmp_path: Path) -> None:
    one.call(train, tmp_path)
    found = [newest(tmp_path, synthetic.FINGERPRINT, step)[0] for step in (2, 4, 6, 5)]
    assert [checkpoint and checkpoint.step for checkpoint in found] == [2, 4, 6, None]
    assert [checkpoint and checkpoint.folder.name for checkpoint in found[:2]] == ["step_000002", "step_000004"]
