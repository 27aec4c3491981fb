"""What a step computes does not depend on ZeRO stage, number of workers, accumulation or interruptions."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.parity.train import synthetic
from tests.parity.train.pool import Pool

TIGHT = {
    "zero_optimization": {
        "stage3_param_persistence_threshold": 0,
        "stage3_max_live_parameters": 0,
        "stage3_max_reuse_distance": 0,
        "stage3_prefetch_bucket_size": 0,
    }
}


def train(workers, folder, settings):
    synthetic.run(synthetic.config(parallel__workers=workers.size, **settings), folder, workers)


def run(pool: Pool, folder: Path, **settings):
    """The losses of a run on a pool, in order of steps."""
    pool.call(train, folder, settings)
    return synthetic.losses(folder)


@pytest.mark.parametrize(("stage", "rows"), [(1, 2), (2, 4)])
def test_flat_gradients_move_weights_as_deepspeed_does_to_the_last_bit(
    two: Pool, tmp_path: Path, stage: int, rows: int
):
    """DeepSpeed's own way is that of whoever overrides a setting of it, here with the value that it has anyway.

    At stage 2 it reduces each micro-step, so here there is one.
    """
    settings = {"parallel__zero_stage": stage, "train__per_device_batch_size": rows, "train__max_grad_norm": 0.0}
    own = {"parallel__deepspeed_overrides": {"zero_optimization": {"round_robin_gradients": False}}}
    theirs = run(two, tmp_path / "theirs", **settings, **own)
    assert run(two, tmp_path / "flat", **settings) == theirs
    for name, given in synthetic.weights(tmp_path / "theirs").items():
        assert torch.equal(synthetic.weights(tmp_path / "flat")[name], given), name


def test_a_run_does_not_know_what_ran_before_it_in_its_process(tmp_path: Path):
    alone = Pool(1)  # not the others' pool: nothing has run in it yet
    try:
        for name, stage in (("before", 2), ("between", 3), ("after", 2)):
            run(alone, tmp_path / name, parallel__zero_stage=stage)
    finally:
        alone.close()
    before, after = (synthetic.weights(tmp_path / name) for name in ("before", "after"))
    assert [name for name in before if not torch.equal(before[name], after[name])] == []


PHASES = {"trainable": [[0, "head"], [4, ["head", "embeddings"]], [5, "all"]]}  # the checkpoint is of the first


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_an_interrupted_run_goes_on_to_the_last_bit_with_dropout(two: Pool, tmp_path: Path, stage: int):
    settings = {"parallel__zero_stage": stage, "train__per_device_batch_size": 2, "checkpoint__save_steps": 3}
    settings |= PHASES
    straight = run(two, tmp_path / "straight", **settings)
    with pytest.raises(synthetic.Interrupted):
        two.call(train_until, tmp_path / "cut", settings, 5)
    resumed = run(two, tmp_path / "cut", **settings)
    assert resumed == straight
    ends = [synthetic.steps(tmp_path / name)[-1] for name in ("straight", "cut")]
    assert ends[0]["batch_hash"] == ends[1]["batch_hash"]
    assert [event["attempt"] for event in synthetic.steps(tmp_path / "cut")] == [1, 1, 1, 2, 2, 2]
    weights = [synthetic.weights(tmp_path / name) for name in ("straight", "cut")]
    assert all((weights[0][key] == weights[1][key]).all() for key in weights[0])


def train_until(workers, folder, settings, step):
    config = synthetic.config(parallel__workers=workers.size, **settings)
    synthetic.run_until(step, config, folder, workers)
