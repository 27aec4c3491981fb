"""Intervals of paired differences: against formulas by counts, and how often they hold the true difference."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from xalign_ray.results.difference import MeanEstimate, accuracy_gain, holm_intervals, ratio

EXPERIMENTS = 2000


def test_accuracy_interval_equals_the_formula_of_bonett_and_price_by_counts() -> None:
    base = np.array([1] * 90 + [1] * 3 + [0] * 8 + [0] * 49, float)
    yours = np.array([1] * 90 + [0] * 3 + [1] * 8 + [0] * 49, float)
    gained, lost, n = (8 + 1) / 152, (3 + 1) / 152, 152
    centre, reach = gained - lost, 1.959964 * np.sqrt((gained + lost - (gained - lost) ** 2) / n)
    assert accuracy_gain(base, yours).interval() == pytest.approx((centre - reach, centre + reach), abs=1e-6)


def test_unchanged_sentences_leave_room_for_a_difference() -> None:
    low, high = accuracy_gain(np.ones(150), np.ones(150)).interval()
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
    ends = np.array([accuracy_gain(np.zeros(count), row).interval() for row in differences])
    held = ((ends[:, 0] <= gained - lost) & (gained - lost <= ends[:, 1])).mean()
    assert held >= 0.94


def test_the_interval_of_a_mean_is_students() -> None:
    values, found = np.random.default_rng(1).gamma(2, size=40), ratio(np.random.default_rng(1).gamma(2, size=40))
    assert found
    assert found.interval() == pytest.approx(tuple(ttest_1samp(values, 0).confidence_interval()))
    assert found.p_value == pytest.approx(ttest_1samp(values, 0).pvalue)


def test_interval_of_one_sentence_does_not_exist() -> None:
    assert ratio(np.ones(1)) is None


def test_ratio_interval_holds_the_true_loss_in_95_percent() -> None:
    """Losses a label, where long sentences have another mean than short ones."""
    rng = np.random.default_rng(2)
    counts = rng.integers(1, 12, (EXPERIMENTS, 100)).astype(float)
    totals = counts * (0.1 + 0.01 * counts) + rng.normal(size=counts.shape) * np.sqrt(counts)
    whole = np.arange(1, 12)
    truth = (whole * (0.1 + 0.01 * whole)).mean() / whole.mean()
    ends = np.array([ratio(*rows).interval() for rows in zip(totals, counts, strict=True)])
    assert 0.93 <= ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean() <= 0.97


def test_holm_intervals_have_the_level_of_their_own_test() -> None:
    """Two of four are significant, at 5 % / 4 and 5 % / 3; the others have the interval of the first test."""
    estimates = [MeanEstimate(value, 1.0) for value in (0.5, 4.0, 2.2, -2.45)]
    expected = [estimates[0].interval(0.05 / 4), estimates[1].interval(0.05 / 4), estimates[2].interval(0.05 / 4)]
    expected += [estimates[3].interval(0.05 / 3)]
    assert holm_intervals(estimates) == [pytest.approx(ends) for ends in expected]
    assert expected[3][1] < 0 < expected[2][1]
    assert expected[2][0] < 0  # 2.2 alone would be significant, and is not as the third of four


@pytest.mark.parametrize("rows", [4, 10, 40])
def test_a_table_in_which_nothing_changed_shows_a_gain_or_loss_in_5_percent(rows: int) -> None:
    errors = np.random.default_rng(4).standard_normal((EXPERIMENTS, rows))
    tables = (holm_intervals([MeanEstimate(error, 1.0) for error in row]) for row in errors)
    wrong = [any(low > 0 or high < 0 for low, high in table) for table in tables]
    assert 0.03 < np.mean(wrong) < 0.07


@pytest.mark.parametrize(("pairs", "most"), [(60, 0.02), (110, 0.02), (300, 0.02)])
def test_a_loss_of_five_points_is_not_called_kept(pairs: int, most: float) -> None:
    """85 % before, 80 % after, changes in 15 % of the sentences: a row among four."""
    rng = np.random.default_rng(5)
    drawn = rng.random((EXPERIMENTS, pairs))
    gaps = np.where(drawn < 0.05, 1.0, np.where(drawn < 0.15, -1.0, 0.0))
    kept = [
        holm_intervals([accuracy_gain(np.zeros(pairs), row), *[MeanEstimate(0.0, 0.02)] * 3])[0][0] > -0.01
        for row in gaps
    ]
    assert np.mean(kept) < most
