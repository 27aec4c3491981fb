"""The ragged arrays: taking, cutting and joining rows against lists of lists."""

from __future__ import annotations

import numpy as np

from tests.unit.streams.random_rows import make_rows
from xalign_ray.shards.rows import (
    Rows,
    concatenate,
    reorder_segments,
    run_index,
    spans,
    split_rows,
    starts,
    sum_runs,
    take,
)


def as_lists(rows: Rows) -> list:
    """[[(language, [(pieces, entry), ...]), ...], ...]."""
    pieces, words, segments = iter(rows.pieces.tolist()), zip(rows.word_length, rows.entry, strict=True), []
    for count, language in zip(rows.segment_words, rows.segment_language, strict=True):
        segment = [next(words) for _ in range(count)]
        segments.append((int(language), [([next(pieces) for _ in range(n)], int(entry)) for n, entry in segment]))
    each = iter(segments)
    return [[next(each) for _ in range(count)] for count in rows.row_segments]


def test_runs() -> None:
    lengths = np.array([2, 0, 3])
    assert starts(lengths).tolist() == [0, 2, 2]
    assert run_index(lengths).tolist() == [0, 0, 2, 2, 2]
    assert sum_runs(np.array([1, 2, 3, 4, 5]), lengths).tolist() == [3, 0, 12]
    assert spans(np.array([7, 1, 4]), lengths).tolist() == [7, 8, 4, 5, 6]


def test_sums_do_not_overflow() -> None:
    large = np.full(3, 2**31 - 1, np.int32)
    assert sum_runs(large, np.array([3])).tolist() == [3 * (2**31 - 1)]


def test_rows_are_taken_in_the_order_asked_for() -> None:
    rows = make_rows(20)
    chosen = np.array([3, 3, 19, 0])
    assert as_lists(take(rows, chosen)) == [as_lists(rows)[i] for i in chosen]
    assert as_lists(take(rows, np.zeros(0, np.int64))) == []


def test_sides_are_reordered() -> None:
    rows = make_rows(1, 2)
    count = len(rows.segment_words)
    assert as_lists(reorder_segments(rows, np.arange(count)[::-1]))[0] == as_lists(rows)[0][::-1]


def test_cut_and_concatenate_are_inverse() -> None:
    rows = make_rows(25)
    for size in (1, 7, 25, 100):
        parts = list(split_rows(rows, size))
        assert [len(part) for part in parts] == [min(size, 25 - b) for b in range(0, 25, size)]
        assert as_lists(concatenate(parts)) == as_lists(rows)
    assert list(split_rows(concatenate([]), 5)) == []
