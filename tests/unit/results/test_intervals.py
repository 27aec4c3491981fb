"""Confidence intervals of differences: simulated coverage, values by hand, and why a difference is undecided."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from tests.bench.intervals import ARMS, SHAPES, SOURCES, draw, excluded, family_rates, rate
from xalign_ray.results.aggregate import ScoreTable
from xalign_ray.results.difference import (
    NEAR_ZERO,
    TOO_FEW,
    TOO_FEW_LANGUAGES,
    TOO_FEW_SEEDS,
    correlation_interval,
    critical,
    difference,
    paired_uncertainty,
    reason,
    spearman,
    unpaired_uncertainty,
)

CASES = list(product(SHAPES, SOURCES))


def difference_interval(values: np.ndarray, base: np.ndarray, paired: bool) -> tuple[float, float] | None:
    """That of [languages, seeds] scores of two arms, whose seeds are the same where they are paired."""
    languages, seeds = ([str(number) for number in range(count)] for count in values.shape)
    others = [seed if paired else f"other {seed}" for seed in map(str, range(base.shape[1]))]
    found = difference(ScoreTable(languages, seeds, values, 1), ScoreTable(languages, others, base, 1))
    return found and found.interval


@pytest.mark.parametrize(("shape", "source"), CASES)
@pytest.mark.parametrize("paired", [True, False])
def test_interval_of_a_true_zero_excludes_zero_in_2_to_7_percent(
    shape: tuple[int, int], source: str, paired: bool
) -> None:
    assert 0.02 <= rate(shape, SOURCES[source], paired=paired) <= 0.07


@pytest.mark.parametrize(("shape", "source"), CASES)
def test_power_grows_with_the_difference(shape: tuple[int, int], source: str) -> None:
    none, one, two = (rate(shape, SOURCES[source], effect) for effect in (0, 1, 2))
    assert none + 0.1 < one < two
    assert two > 0.45


@pytest.mark.parametrize("arms", ARMS)
@pytest.mark.parametrize("source", SOURCES)
def test_equal_arms_are_told_apart_in_2_to_7_percent(arms: int, source: str) -> None:
    wrong, best = family_rates(arms, (9, 3), SOURCES[source])
    assert 0.02 <= wrong <= 0.07
    assert 0.02 <= best <= wrong


@pytest.mark.parametrize(
    "spread", [(0.3, 0.3, 1.0), (1.0, 0.0, 1.0), (0.0, 1.0, 1.0), (0.0, 0.0, 1.0), (1.0, 1.0, 0.0)]
)
@pytest.mark.parametrize("shape", [(3, 3), (14, 3), (14, 2)])
def test_components_of_zero_never_make_an_interval_too_narrow(
    shape: tuple[int, int], spread: tuple[float, float, float]
) -> None:
    scores = draw(np.random.default_rng(1), 4000, 2, shape, spread)
    assert excluded(scores).mean() <= 0.075


@pytest.mark.parametrize("arms", [10, 15, 40])
def test_independent_measures_are_correlated_in_2_to_7_percent(arms: int) -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 4000, arms))
    low, high = correlation_interval(spearman(x, y), arms)
    assert 0.02 <= np.mean((low > 0) | (high < 0)) <= 0.07
    related = correlation_interval(spearman(x, x + 0.5 * y), arms)
    assert np.mean(related[0] > 0) > 0.7


@pytest.mark.parametrize("paired", [True, False])
def test_one_language_is_a_students_test_over_seeds(paired: bool) -> None:
    values, base = np.random.default_rng(0).random((2, 1, 5))
    low, high = difference_interval(values, base, paired) or (0.0, 0.0)
    test = stats.ttest_rel(values[0], base[0]) if paired else stats.ttest_ind(values[0], base[0], equal_var=False)
    expected = test.confidence_interval()
    assert (low, high) == pytest.approx((expected.low, expected.high))


def test_one_seed_is_a_students_test_over_languages() -> None:
    values, base = np.random.default_rng(0).random((2, 6, 1))
    expected = stats.ttest_rel(values[:, 0], base[:, 0]).confidence_interval()
    assert difference_interval(values, base, True) == pytest.approx((expected.low, expected.high))


def test_a_released_encoder_is_compared_with_all_seeds_of_another() -> None:
    """Other seeds of that one would have given 0 as well: seeds vary by 2, languages and the rest by 1."""
    random, many = np.random.default_rng(5), 2000
    sizes = {(many, 8, 1): 1.0, (many, 1, 3): 2.0, (many, 8, 3): 1.0}
    arm = sum(deviation * random.normal(size=size) for size, deviation in sizes.items())
    found = unpaired_uncertainty(np.asarray(arm), np.zeros((many, 8, 1)))
    reach = critical(found.degrees, 1) * found.standard_error
    wrong = np.mean(np.abs(np.mean(arm, axis=(1, 2))) > reach)
    assert 0.02 < wrong < 0.07  # 0.44 by languages alone


def slow_variance(gaps: np.ndarray) -> float:
    """The variance of the mean of [languages, seeds] differences, cell by cell: mean squares of a crossed table."""
    (languages, seeds), mean = gaps.shape, gaps.mean()
    rows, columns = gaps.mean(axis=1), gaps.mean(axis=0)
    of_languages = seeds * sum((row - mean) ** 2 for row in rows) / (languages - 1)
    of_seeds = languages * sum((column - mean) ** 2 for column in columns) / (seeds - 1)
    rest = sum((gaps[i, j] - rows[i] - columns[j] + mean) ** 2 for i in range(languages) for j in range(seeds))
    rest /= (languages - 1) * (seeds - 1)
    return max(of_languages + of_seeds - rest, of_languages, of_seeds) / (languages * seeds)


@pytest.mark.parametrize("effects", [(2, 5, 1), (2, 1, 3)])  # of languages, of seeds
def test_standard_error_is_that_of_crossed_mean_squares(effects: tuple[int, int, int]) -> None:
    random = np.random.default_rng(4)
    values, base = random.normal(size=(2, 5, 3)) + 3 * random.normal(size=effects)
    found = paired_uncertainty(np.stack([values, base]))
    assert found.standard_error**2 == pytest.approx(slow_variance(values - base))
    assert bool(found.by_seeds) is (effects[2] > 1)


def test_negative_components_leave_the_larger_mean_square() -> None:
    gaps = np.array([[1.0, -1.0, 0.0], [-1.0, 0.0, 1.0], [0.2, 1.2, -0.8]])  # seeds vary less than the rest
    found = paired_uncertainty(np.stack([gaps, np.zeros((3, 3))]))
    rows = gaps.mean(axis=1)
    assert found.standard_error**2 == pytest.approx(rows.var(ddof=1) / 3)


def test_two_arms_of_a_family_have_the_interval_of_a_pair() -> None:
    values, base = np.random.default_rng(2).random((2, 4, 3))
    family, pair = paired_uncertainty(np.stack([base, values])), paired_uncertainty(np.stack([values, base]))
    assert family.standard_error == pytest.approx(pair.standard_error)
    assert family.degrees == pytest.approx(pair.degrees)


# Dunnett 1964, Table III: two-sided, 95 %, correlation 0.5.
@pytest.mark.parametrize(
    ("degrees", "comparisons", "quantile"),
    [
        (5, 1, 2.57),
        (5, 2, 3.03),
        (5, 3, 3.29),
        (10, 2, 2.57),
        (10, 3, 2.76),
        (20, 2, 2.38),
        (20, 9, 2.95),
        (60, 3, 2.41),
    ],
)
def test_critical_values_are_those_of_dunnetts_table(degrees: float, comparisons: int, quantile: float) -> None:
    assert critical(np.array(float(degrees)), comparisons) == pytest.approx(quantile, abs=0.006)


def test_an_equal_gain_in_every_language_and_seed_has_no_width() -> None:
    base = np.random.default_rng(0).random((5, 3))
    assert difference_interval(base + 0.125, base, paired=True) == pytest.approx((0.125, 0.125))


def test_seeds_of_its_own_make_an_interval_wider_than_shared_ones() -> None:
    base = np.tile([0.0, 1.0, 2.0, 3.0], (6, 1))
    paired, alone = (difference_interval(base + 0.5, base, paired) for paired in (True, False))
    assert paired == pytest.approx((0.5, 0.5))
    assert alone is not None
    assert alone[0] < 0 < 1 < alone[1]


@pytest.mark.parametrize(
    ("values", "base", "there"),
    [((2, 2), (2, 2), False), ((3, 1), (3, 1), True), ((1, 3), (1, 3), True), ((1, 3), (1, 2), False)],
)
def test_two_languages_and_two_seeds_have_no_interval(
    values: tuple[int, int], base: tuple[int, int], there: bool
) -> None:
    assert (difference_interval(np.ones(values), np.zeros(base), values == base) is not None) is there


@pytest.mark.parametrize(
    ("ends", "languages", "seeds", "by_seeds", "why"),
    [
        ((0.001, 0.2), 5, 3, True, ""),
        ((-0.2, -0.001), 5, 3, False, ""),
        ((-0.02, 0.2), 5, 3, True, TOO_FEW_SEEDS),
        ((-0.02, 0.2), 5, 3, False, TOO_FEW_LANGUAGES),
        ((-0.02, 0.2), 5, 1, False, TOO_FEW_SEEDS),
        ((-0.0099, 0.0099), 5, 3, True, NEAR_ZERO),
        ((-0.011, 0.0099), 5, 3, True, TOO_FEW_SEEDS),
        (None, 2, 2, True, TOO_FEW),
    ],
)
def test_undecided_differences_say_why(
    ends: tuple[float, float] | None, languages: int, seeds: int, by_seeds: bool, why: str
) -> None:
    assert reason(ends, languages, seeds, by_seeds) == why
