"""The row hash: a batch's sum does not know of workers; test_pinned.py has what a row's hash is of."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.streams.random_rows import VOCABULARY, make_context, make_rows
from xalign_ray.config.choices import MaskedText
from xalign_ray.config.derive import BatchSizes
from xalign_ray.shards.rows import take
from xalign_ray.streams.collate import Layout, collate_rows
from xalign_ray.streams.prediction import stream_columns


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


def test_a_row_that_is_too_long_is_refused_and_not_written_into_the_next() -> None:
    rows = make_rows(3, filled=60)
    with pytest.raises(AssertionError, match="too long"):
        collate_rows(rows, Layout(), VOCABULARY, 30)
