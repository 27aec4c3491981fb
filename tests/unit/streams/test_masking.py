"""Masking at its edges: budgets, nothing to mask, a rate by step; tests/parity has it against a slow reference."""

from __future__ import annotations

import numpy as np

from tests.unit.streams.random_rows import make_context, make_rows
from xalign_ray.config.choices import MaskedText
from xalign_ray.config.schema import MaskingConfig
from xalign_ray.shards.counter_random import row_keys
from xalign_ray.streams.prediction import budgets, choose_words, stream_columns


def test_budget_rounds_half_to_even() -> None:
    assert budgets(np.array([3, 10, 30, 50]), 0.15).tolist() == [1, 2, 4, 8]  # 0.45, 1.5, 4.5, 7.5
    assert budgets(np.array([1, 3, 5, 7]), 0.5).tolist() == [1, 2, 2, 4]


def test_no_word_is_chosen_from_no_words() -> None:
    nothing = np.zeros(0, np.int64)
    assert len(choose_words(nothing.astype(np.uint64), nothing, nothing, nothing, nothing)) == 0
    none_fits = choose_words(
        row_keys(0, np.zeros(2, np.int64)), np.arange(2), np.array([3, 4]), np.array([2]), np.array([2])
    )
    assert none_fits.tolist() == [False, False]


def test_the_rate_follows_its_schedule_by_step() -> None:
    """Positions 4s to 4s + 3 are step s; between [10, 1/8] and [20, 5/8] step 15 masks 3/8."""
    rows = make_rows(400)
    positions = np.arange(400) % 100 + 4
    steps = positions // 4
    context = make_context(MaskingConfig(mlm_probability=((10, 0.125), (20, 0.625))), global_rows=4)
    columns = stream_columns(MaskedText(), rows, positions, context)
    for step, rate in ((1, 0.125), (10, 0.125), (15, 0.375), (20, 0.625), (25, 0.625)):
        constant = stream_columns(MaskedText(), rows, positions, make_context(MaskingConfig(mlm_probability=rate)))
        for name in columns:
            np.testing.assert_array_equal(columns[name][steps == step], constant[name][steps == step])
    assert set(steps.tolist()) == set(range(1, 26))
