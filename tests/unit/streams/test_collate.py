"""The row hash: it changes with everything that a step sees, and a batch's sum does not know of workers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.streams.random_rows import VOCABULARY, make_context, make_rows
from xalign_ray.config.choices import MaskedText
from xalign_ray.config.derive import BatchSizes
from xalign_ray.shards.rows import take
from xalign_ray.streams.collate import Columns, Layout, collate_rows, hash_rows
from xalign_ray.streams.prediction import stream_columns


def make_columns() -> Columns:
    return {"input_ids": np.arange(12, dtype=np.int32).reshape(2, 6), "labels": np.full((2, 6), -100, np.int32)}


POSITIONS = np.array([7, 8])


@pytest.mark.parametrize("name", ["input_ids", "labels"])
def test_any_id_or_label_changes_the_hash_of_its_row_only(name: str) -> None:
    before = hash_rows(POSITIONS, make_columns())
    seen = {int(before[0])}
    for column in range(6):
        for value in (-1, 5000, 2**31 - 1):
            changed = make_columns()
            changed[name][0, column] = value
            after = hash_rows(POSITIONS, changed)
            assert after[1] == before[1]
            seen.add(int(after[0]))
    assert len(seen) == 1 + 6 * 3


def test_the_position_changes_the_hash() -> None:
    a, b = hash_rows(POSITIONS, make_columns()), hash_rows(POSITIONS[::-1].copy(), make_columns())
    assert not set(a.tolist()) & set(b.tolist())


def test_two_values_that_change_places_change_the_hash() -> None:
    for name in ("input_ids", "labels"):
        columns, swapped = make_columns(), make_columns()
        columns[name][0, 2], swapped[name][0, 2] = 40, 50
        columns[name][0, 3], swapped[name][0, 3] = 50, 40
        assert hash_rows(POSITIONS, columns)[0] != hash_rows(POSITIONS, swapped)[0]
    columns, swapped = make_columns(), make_columns()
    swapped["input_ids"], swapped["labels"] = columns["labels"], columns["input_ids"]
    assert hash_rows(POSITIONS, columns)[0] != hash_rows(POSITIONS, swapped)[0]


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 7])
def test_batch_hash_does_not_depend_on_the_number_of_workers(workers: int) -> None:
    rows, positions = make_rows(24), np.arange(100, 124)
    whole = stream_columns(MaskedText(), rows, positions, make_context())["row_hash"].sum(dtype=np.uint64)
    shares = [np.arange(*BatchSizes(24, workers, 1).rows_of(rank)) for rank in range(workers)]
    parts = [
        stream_columns(MaskedText(), take(rows, mine), positions[mine], make_context())["row_hash"].sum(dtype=np.uint64)
        for mine in shares
    ]
    assert np.array(parts).sum(dtype=np.uint64) == whole


def test_hashes_are_spread() -> None:
    hashes = stream_columns(MaskedText(), make_rows(1500), np.arange(1500), make_context())["row_hash"]
    assert len(np.unique(hashes)) == 1500
    bits = (hashes[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert (abs(bits.mean(axis=0) - 0.5) < 4.5 * 0.5 / np.sqrt(1500)).all()


def test_a_row_that_is_too_long_is_refused_and_not_written_into_the_next() -> None:
    rows = make_rows(3, filled=60)
    with pytest.raises(AssertionError, match="too long"):
        collate_rows(rows, Layout(), VOCABULARY, 30)
