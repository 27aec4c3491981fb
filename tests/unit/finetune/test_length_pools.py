"""Batches of units: every row once an epoch, like lengths together, as many passes a step as fit the device."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_ray.finetune.features import LengthPools

LENGTHS = [5, 1, 3, 2, 4, 6, 2, 1, 3, 5]


def test_every_row_is_seen_once_an_epoch_in_a_new_order_and_like_lengths_together():
    pools = LengthPools(np.arange(10), np.array(LENGTHS), step=4, forward=4, seed=1)
    epochs = [list(pools) for _ in range(3)]
    for batches in epochs:
        assert sorted(row for batch in batches for row in batch) == list(range(10))
        assert [len(batch) for batch in batches] == [4, 4, 2]
        ranked = sorted(batches, key=lambda batch: LENGTHS[batch[0]])
        assert [LENGTHS[row] for batch in ranked for row in batch] == sorted(LENGTHS)
    assert epochs[0] != epochs[1]
    assert epochs[0] == next(list(same) for same in [LengthPools(np.arange(10), np.array(LENGTHS), 4, 4, 1)])


def test_rows_of_a_unit_share_a_pass_and_its_longest_row_is_its_length():
    units = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    for batch in LengthPools(units, np.array(LENGTHS), step=2, forward=2, seed=1):
        assert len(batch) in (2, 4)
        assert {units[row] for row in batch[::2]} == {units[row] for row in batch[1::2]}


@pytest.mark.parametrize(("step", "forward", "sizes"), [(4, 2, [2, 2, 2, 2, 2]), (6, 4, [3, 3, 4]), (4, 9, [4, 4, 2])])
def test_a_step_is_so_many_passes_and_the_last_may_have_fewer(step: int, forward: int, sizes: list[int]):
    pools = LengthPools(np.arange(10), np.array(LENGTHS), step, forward, seed=1)
    assert [len(batch) for batch in pools] == sizes
    assert (len(pools), pools.passes) == (len(sizes), -(-step // min(step, forward)))


def test_units_without_rows_are_left_out():
    pools = LengthPools(np.array([0, 2, 2, 5]), np.array([1, 2, 3, 4]), step=1, forward=1, seed=0)
    assert sorted(map(tuple, pools)) == [(0,), (1, 2), (3,)]
