"""Packing: everything once, nothing too long, little padding."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_ray.text.packing import WINDOW, pack_rows


@pytest.mark.parametrize("count", [0, 1, 500, 3 * WINDOW + 17])
def test_every_example_once_and_no_row_too_long(count: int) -> None:
    lengths = np.random.default_rng(0).integers(3, 129, count).tolist()
    rows = pack_rows(lengths, 128)
    assert sorted(example for row in rows for example in row) == list(range(count))
    assert all(sum(lengths[example] for example in row) <= 128 for row in rows)
    assert all(row == sorted(row) for row in rows)


def test_sentences_pack_with_less_than_five_percent_padding() -> None:
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(np.log(24), 0.6, 20000), 4, 128).astype(int).tolist()  # Wikipedia-like
    rows = pack_rows(lengths, 128)
    assert 1 - sum(lengths) / (len(rows) * 128) < 0.05


def test_best_fit_by_hand() -> None:
    assert pack_rows([6, 5, 4, 3, 2], 10) == [[0, 2], [1, 3, 4]]
    assert pack_rows([10, 10], 10) == [[0], [1]]


def test_examples_stay_within_their_window() -> None:
    rows = pack_rows([1] * (WINDOW + 1), 4)
    assert rows[-1] == [WINDOW]


def test_packing_is_deterministic() -> None:
    lengths = np.random.default_rng(3).integers(1, 64, 5000).tolist()
    assert pack_rows(lengths, 64) == pack_rows(list(lengths), 64)


def test_an_example_longer_than_a_row_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError):
        pack_rows([11], 10)
