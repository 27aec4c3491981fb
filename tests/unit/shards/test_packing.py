"""Packing: everything once, nothing too long, little padding."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from xalign_ray.shards.rows import WINDOW, Run, pack_rows

SPECIAL = 2


def alone(lengths: Sequence[int]) -> list[list[int]]:
    """Examples of one line each."""
    return [[length] for length in lengths]


def articles(source: np.random.Generator, count: int, room: int) -> list[list[int]]:
    """Examples as long paragraphs and short headings give them: lines go together until the next does not fit."""
    examples: list[list[int]] = [[]]
    for length in np.clip(source.lognormal(np.log(45), 1.0, count), 1, room).astype(int).tolist():
        if sum(examples[-1]) + length > room:
            examples.append([])
        examples[-1].append(length)
    return examples


def padding(examples: Sequence[Sequence[int]], rows: Sequence[Sequence[Run]], capacity: int) -> float:
    used = sum(SPECIAL + sum(examples[number][first:last]) for row in rows for number, first, last in row)
    return 1 - used / (len(rows) * capacity)


@pytest.mark.parametrize("count", [0, 1, 500, 3 * WINDOW + 17])
def test_every_example_once_and_no_row_too_long(count: int) -> None:
    lengths = np.random.default_rng(0).integers(1, 127, count).tolist()
    rows = pack_rows(alone(lengths), SPECIAL, 128)
    assert sorted(run for row in rows for run in row) == [(number, 0, 1) for number in range(count)]
    assert all(sum(lengths[number] + SPECIAL for number, _, _ in row) <= 128 for row in rows)
    assert all(row == sorted(row) for row in rows)


def test_every_line_once_where_examples_are_parted() -> None:
    examples = articles(np.random.default_rng(1), 3 * WINDOW, 126)
    rows = pack_rows(examples, SPECIAL, 128)
    runs = sorted(run for row in rows for run in row)
    lines = [(number, line) for number, first, last in runs for line in range(first, last)]
    assert lines == [(number, line) for number, example in enumerate(examples) for line in range(len(example))]
    assert all(sum(sum(examples[n][a:b]) + SPECIAL for n, a, b in row) <= 128 for row in rows)
    assert all(row == sorted(row) for row in rows)
    assert all((a[0], a[2]) != (b[0], b[1]) for row in rows for a, b in pairwise(row)), "parted in vain"
    assert 0 < len(runs) - len(examples) < 0.1 * len(examples), "few examples are parted"


def test_sentences_pack_with_less_than_five_percent_padding() -> None:
    random = np.random.default_rng(0)
    sentences = alone(np.clip(random.lognormal(np.log(24), 0.6, 20000), 4, 126).astype(int).tolist())  # Wikipedia-like
    assert padding(sentences, pack_rows(sentences, SPECIAL, 128), 128) < 0.05


@pytest.mark.parametrize("capacity", [115, 128])
def test_articles_pack_with_less_than_four_percent_padding(capacity: int) -> None:
    examples = articles(np.random.default_rng(2), 20_000, capacity - SPECIAL)
    whole = alone([sum(example) for example in examples])
    assert padding(whole, pack_rows(whole, SPECIAL, capacity), capacity) > 0.05, "they are hard to pack"
    assert padding(examples, pack_rows(examples, SPECIAL, capacity), capacity) < 0.04


def test_best_fit_by_hand() -> None:
    assert pack_rows(alone([5, 4, 3, 2, 1]), 1, 10) == [[(0, 0, 1), (2, 0, 1)], [(1, 0, 1), (3, 0, 1), (4, 0, 1)]]
    assert pack_rows(alone([9, 9]), 1, 10) == [[(0, 0, 1)], [(1, 0, 1)]]


def test_a_row_is_dissolved_by_hand() -> None:
    # Whole, three rows of 7, 7 and 6 tokens; of the last the first line fits into one hole, the others into another.
    assert pack_rows([[6], [6], [2, 1, 1]], 1, 10) == [[(0, 0, 1), (2, 1, 3)], [(1, 0, 1), (2, 0, 1)]]


def test_a_row_that_cannot_be_dissolved_stays_as_it_is() -> None:
    # The first line would find a place, the second none.
    assert pack_rows([[6], [7], [2, 3]], 1, 10) == [[(1, 0, 1)], [(0, 0, 1)], [(2, 0, 2)]]


def test_examples_stay_within_their_window() -> None:
    rows = pack_rows(alone([1] * (WINDOW + 1)), 0, 4)
    assert rows[-1] == [(WINDOW, 0, 1)]


def test_packing_is_deterministic() -> None:
    examples = articles(np.random.default_rng(3), 5000, 62)
    assert pack_rows(examples, SPECIAL, 64) == pack_rows([list(example) for example in examples], SPECIAL, 64)


def test_an_example_longer_than_a_row_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError):
        pack_rows([[6, 4]], 1, 10)
