"""A run folder may have any name: DeepSpeed would take its path for a glob pattern and a regular expression."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from tests.parity.train import synthetic
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_checkpoint import starts, stop_after, train
from xalign_ray.train.checkpoint import consolidate, newest

NAME = "run [v2] * (a+b)? {c} ^$"
SETTINGS = {"parallel__zero_stage": 2, "model__hidden_dropout_prob": 0.0}


def test_resume_resharding_and_export_in_a_folder_with_glob_characters(one: Pool, two: Pool, tmp_path: Path) -> None:
    named, plain = tmp_path / NAME, tmp_path / "plain"
    for folder in (named, plain):
        two.call(stop_after, folder, SETTINGS, 2)
        two.call(stop_after, folder, SETTINGS, 4)
        one.call(train, folder, SETTINGS)
    assert starts(named) == [0, 2, 4]
    np.testing.assert_array_equal(synthetic.losses(named), synthetic.losses(plain))
    weights = [consolidate(newest(folder, synthetic.FINGERPRINT)[0]) for folder in (named, plain)]  # type: ignore[arg-type]
    torch.testing.assert_close(*weights, rtol=0, atol=0)
    assert {path.name for path in (named / "checkpoints").iterdir()} == {"step_000004", "step_000006"}
