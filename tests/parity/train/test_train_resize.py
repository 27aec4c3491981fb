"""A run moves between numbers of workers: DeepSpeed's converter really runs, as a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.parity.train import synthetic
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_checkpoint import starts, stop_after, train
from xalign_ray.errors import CheckpointError
from xalign_ray.work.artifacts import read_manifest

PHASES = [[0, "head"], [3, "embeddings"], [5, "all"]]


@pytest.mark.parametrize(("stage", "trainable"), [(1, "all"), (2, "all"), (3, "all"), (1, PHASES), (2, PHASES)])
def test_a_sharded_run_goes_on_with_another_number_of_workers(
    one: Pool, two: Pool, tmp_path: Path, stage: int, trainable: Any
):
    settings = {"parallel__zero_stage": stage, "model__hidden_dropout_prob": 0.0, "trainable": trainable}
    two.call(stop_after, tmp_path / "changed", settings, 2)
    one.call(stop_after, tmp_path / "changed", settings, 4)
    two.call(train, tmp_path / "changed", settings)
    two.call(train, tmp_path / "straight", settings)
    assert starts(tmp_path / "changed") == [0, 2, 4]
    np.testing.assert_allclose(
        synthetic.losses(tmp_path / "changed"), synthetic.losses(tmp_path / "straight"), atol=2e-6
    )
    assert {path.name for path in (tmp_path / "changed" / "checkpoints").iterdir()} == {"step_000004", "step_000006"}


def test_phases_at_stage_3_need_the_same_workers(one: Pool, two: Pool, tmp_path: Path):
    settings = {"parallel__zero_stage": 3, "trainable": PHASES}
    two.call(stop_after, tmp_path, settings, 2)
    with pytest.raises(CheckpointError, match=r"one count of steps, .* Continue with --set parallel.workers=2"):
        one.call(train, tmp_path, settings)


def test_a_checkpoint_that_cannot_be_converted_is_refused_with_the_way_out(one: Pool, two: Pool, tmp_path: Path):
    two.call(stop_after, tmp_path, {}, 2)
    folder = tmp_path / "checkpoints" / "step_000002"
    manifest = read_manifest(folder)
    (folder / "state" / "mp_rank_00_model_states.pt").unlink()
    del manifest["files"]["state/mp_rank_00_model_states.pt"]
    synthetic.write_changed(folder, manifest)
    with pytest.raises(CheckpointError) as refused:
        one.call(train, tmp_path, {})
    said = str(refused.value)
    assert said.startswith(f"{folder} was written by 2 workers and cannot be converted for 1: ")
    assert said.endswith("Continue with --set parallel.workers=2.")
