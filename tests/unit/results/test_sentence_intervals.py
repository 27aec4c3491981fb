"""Intervals of paired differences: against formulas by counts, and how often they hold the true difference."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from xalign_ray.results.difference import accuracy_interval, mean_interval, ratio_interval

EXPERIMENTS = 2000


def test_accuracy_interval_equals_the_formula_of_bonett_and_price_by_counts() -> None:
    base = np.array([1] * 90 + [1] * 3 + [0] * 8 + [0] * 49, float)
    yours = np.array([1] * 90 + [0] * 3 + [1] * 8 + [0] * 49, float)
    gained, lost, n = (8 + 1) / 152, (3 + 1) / 152, 152
    centre, reach = gained - lost, 1.959964 * np.sqrt((gained + lost - (gained - lost) ** 2) / n)
    assert accuracy_interval(base, yours) == pytest.approx((centre - reach, centre + reach), abs=1e-6)


def test_unchanged_sentences_leave_room_for_a_difference() -> None:
    low, high = accuracy_interval(np.ones(150), np.ones(150))
    assert low == pytest.approx(-0.0182, abs=1e-4)
    assert high == pytest.approx(0.0182, abs=1e-4)


@pytest.mark.parametrize("both_directions", [False, True])
@pytest.mark.parametrize(
    ("count", "lost", "gained"),
    [(150, 0.01, 0.01), (150, 0.002, 0.02), (150, 0.0, 0.02), (50, 0.02, 0.02), (1000, 0.005, 0.005), (150, 0.1, 0.2)],
)
def test_accuracy_interval_holds_the_true_difference_in_95_percent(
    count: int, lost: float, gained: float, both_directions: bool
) -> None:
    """At 98 % accuracy few sentences change; both directions of a pair mostly change together."""
    rng = np.random.default_rng(3)
    drawn = rng.random((2, EXPERIMENTS, count))
    changes = np.where(drawn < gained, 1, np.where(drawn < gained + lost, -1, 0))
    forward, backward = changes
    backward = np.where(rng.random((EXPERIMENTS, count)) < 0.6, forward, backward)
    differences = (forward + backward) / 2 if both_directions else forward
    ends = np.array([accuracy_interval(np.zeros(count), row) for row in differences])
    held = ((ends[:, 0] <= gained - lost) & (gained - lost <= ends[:, 1])).mean()
    assert held >= 0.94


def test_mean_interval_is_students() -> None:
    values = np.random.default_rng(1).gamma(2, size=40)
    assert mean_interval(values) == pytest.approx(tuple(ttest_1samp(values, 0).confidence_interval()))


def test_interval_of_one_sentence_does_not_exist() -> None:
    assert mean_interval(np.ones(1)) is None


def test_ratio_interval_holds_the_true_loss_in_95_percent() -> None:
    """Losses a label, where long sentences have another mean than short ones."""
    rng = np.random.default_rng(2)
    counts = rng.integers(1, 12, (EXPERIMENTS, 100)).astype(float)
    totals = counts * (0.1 + 0.01 * counts) + rng.normal(size=counts.shape) * np.sqrt(counts)
    whole = np.arange(1, 12)
    truth = (whole * (0.1 + 0.01 * whole)).mean() / whole.mean()
    ends = np.array([ratio_interval(*rows) for rows in zip(totals, counts, strict=True)])
    assert 0.93 <= ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean() <= 0.97
