"""Confidence intervals of differences: simulated coverage, values by hand, and why a difference is undecided."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.bench.intervals import ARMS, CASES, SHAPES, SOURCES, UNDECIDED, Case, excluded, rates
from xalign_ray.results.difference import (
    NEAR_ZERO,
    ONE_RUN,
    TOO_FEW,
    TOO_FEW_GROUPS,
    TOO_FEW_LANGUAGES,
    TOO_FEW_SEEDS,
    MeanEstimate,
    difference,
    differences_from,
    holm_intervals,
    macro_interval,
    reason,
    smallest_decided,
    uncertainty,
)

PLAIN = list(product(SHAPES, SOURCES))


def table(values: np.ndarray, kind: str = "pretraining") -> pd.DataFrame:
    """Of [languages, seeds] scores."""
    return pd.DataFrame(values).rename(index=str, columns=lambda seed: f"{kind} {seed}")


def difference_interval(values: np.ndarray, base: np.ndarray, paired: bool) -> tuple[float, float] | None:
    """That of [languages, seeds] scores of two arms, whose seeds are the same where they are paired."""
    found = difference(table(values), table(base, "pretraining" if paired else "fine-tuning"))
    return found and found.interval


@pytest.mark.parametrize(("shape", "source"), PLAIN)
@pytest.mark.parametrize("paired", [True, False])
def test_interval_of_a_true_zero_excludes_zero_in_2_to_8_percent(
    shape: tuple[int, int], source: str, paired: bool
) -> None:
    assert 0.02 <= rates(Case(*shape, [SOURCES[source]] * 2, paired=paired))[0] <= 0.08


@pytest.mark.parametrize(("shape", "source"), PLAIN)
def test_power_grows_with_the_difference(shape: tuple[int, int], source: str) -> None:
    none, one, two = (rates(Case(*shape, [SOURCES[source]] * 2), effect)[0] for effect in (0, 1, 2))
    assert none + 0.1 < one < two
    assert two > 0.45


@pytest.mark.parametrize("spread", [(2.0, 1.0), (2.0, 0.1), (0.5, 1.0)])
@pytest.mark.parametrize(("languages", "seeds", "comparisons"), [(12, 3, 1), (6, 3, 4), (20, 5, 7)])
def test_the_smallest_difference_that_a_plan_names_is_decided_in_80_percent(
    languages: int, seeds: int, comparisons: int, spread: tuple[float, float]
) -> None:
    true, rng = smallest_decided(languages, seeds, spread, comparisons), np.random.default_rng(1)
    decided = 0
    for _ in range(400):
        of_both = rng.normal(50, 5, (languages, seeds))
        effects = spread[0] * rng.standard_normal((languages, 1)) + spread[1] * rng.standard_normal(seeds)
        found = difference(table(of_both + true + effects), table(of_both), comparisons)
        assert found
        assert found.interval
        decided += found.interval[0] > 0
    assert 0.74 < decided / 400 < 0.86  # three standard errors


@pytest.mark.parametrize("arms", ARMS)
@pytest.mark.parametrize("source", SOURCES)
def test_equal_arms_are_told_apart_in_at_most_8_percent(arms: int, source: str) -> None:
    single, several, best = rates(Case(9, 3, [SOURCES[source]] * arms))
    assert 0.02 <= single <= 0.08
    assert best <= several <= 0.08


@pytest.mark.parametrize("name", CASES)
def test_unequal_spread_own_fine_tunings_and_related_languages_exclude_zero_in_2_to_8_percent(name: str) -> None:
    single, several, _ = rates(CASES[name])
    assert 0.02 <= single <= 0.08
    assert several <= 0.08


@pytest.mark.parametrize("name", UNDECIDED)
def test_where_zero_is_excluded_too_often_the_report_decides_nothing(name: str) -> None:
    """Such a difference has a reason for being undecided however far its interval is from zero."""
    case = UNDECIDED[name]
    assert max(rates(case)[:2]) > 0.08
    own, base = table(np.full((case.languages, case.seeds), 0.9)), table(np.zeros((case.languages, case.seeds)))
    if case.seen:
        base = base.iloc[:, :1]
        own = own.iloc[:, :1] if case.paired else own.rename(columns=lambda seed: f"f {seed}")
    groups = [*case.groups] or [*own.index]
    (found,) = differences_from({"": own}, base, lambda _: groups).values()
    assert found.undecided() == (TOO_FEW_GROUPS if case.groups else ONE_RUN)


@pytest.mark.parametrize(
    "spread", [(0.3, 0.3, 1.0), (1.0, 0.0, 1.0), (0.0, 1.0, 1.0), (0.0, 0.0, 1.0), (1.0, 1.0, 0.0)]
)
@pytest.mark.parametrize("shape", [(3, 3), (14, 3), (14, 2)])
def test_components_of_zero_never_make_an_interval_too_narrow(
    shape: tuple[int, int], spread: tuple[float, float, float]
) -> None:
    assert rates(Case(*shape, [spread] * 2))[0] <= 0.075


def test_the_simulations_holm_is_that_of_reports() -> None:
    p_values = np.random.default_rng(0).random((200, 5)) ** 3
    estimates = [[MeanEstimate(float(stats.norm.isf(p / 2)), 1.0) for p in row] for row in p_values]
    expected = [[low > 0 or high < 0 for low, high in holm_intervals(row)] for row in estimates]
    assert excluded(p_values).tolist() == expected


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
    arm = np.asarray(sum(deviation * random.normal(size=size) for size, deviation in sizes.items()))
    error, degrees, _ = uncertainty(arm.mean(axis=-1), [arm, np.zeros((many, 8, 1))], [*"abcdefgh"])
    wrong = np.mean(np.abs(np.mean(arm, axis=(1, 2))) > stats.t.ppf(0.975, degrees) * error)
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
    found = difference(table(values), table(base))
    assert found is not None
    assert found.estimate.standard_error**2 == pytest.approx(slow_variance(values - base))
    assert found.by_seeds is (effects[2] > 1)


def test_negative_components_leave_the_larger_mean_square() -> None:
    gaps = np.array([[1.0, -1.0, 0.0], [-1.0, 0.0, 1.0], [0.2, 1.2, -0.8]])  # seeds vary less than the rest
    found = difference(table(gaps), table(np.zeros((3, 3))))
    assert found is not None
    assert found.estimate.standard_error**2 == pytest.approx(gaps.mean(axis=1).var(ddof=1) / 3)


def test_each_arm_has_its_own_variance_and_holms_level() -> None:
    random = np.random.default_rng(3)
    base, quiet, loud = random.normal(size=(3, 6, 3)) * [[[1.0]], [[1.0]], [[20.0]]]
    arms = {"quiet": table(quiet + 5), "loud": table(loud)}
    found = differences_from(arms, table(base))
    alone = {label: difference(arm, table(base)) for label, arm in arms.items()}
    assert {label: gap.estimate for label, gap in found.items()} == {
        a: gap and gap.estimate for a, gap in alone.items()
    }
    assert found["quiet"].interval == found["quiet"].estimate.interval(0.025)
    assert found["loud"].interval == found["loud"].estimate.interval(0.05 / 2)
    assert found["quiet"].comparisons == 2


def test_related_languages_are_fewer_independent_ones() -> None:
    gaps = np.array([0.30, 0.31, 0.29, 0.10, 0.11, 0.09, 0.20])
    alone, related = (uncertainty(gaps, [gaps[:, None]], [*groups]) for groups in ("abcdefg", "aaabbbc"))
    assert related.standard_error > 1.4 * alone.standard_error
    assert related.degrees < 2.1 < alone.degrees == pytest.approx(6)


@pytest.mark.parametrize("sizes", [(1000, 1000, 1000), (40, 40, 2000, 2000), (30,), (20, 3000)])
def test_the_interval_of_a_macro_mean_holds_the_true_one_in_95_percent(sizes: tuple[int, ...]) -> None:
    """Small test sets weigh as much as large ones: of n summed over languages 0.68 and less."""
    random, many = np.random.default_rng(6), 2000
    shares, counts = random.uniform(0.2, 0.95, len(sizes)), np.array(sizes, float)
    drawn = random.binomial(sizes, shares, (many, len(sizes))) / counts
    ends = np.array([macro_interval(row, counts) for row in drawn])
    assert 0.93 <= ((ends[:, 0] <= shares.mean()) & (shares.mean() <= ends[:, 1])).mean() <= 0.975


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
    ("ends", "languages", "seeds", "by_seeds", "groups", "why"),
    [
        ((0.001, 0.2), 5, 3, True, 5, ""),
        ((0.001, 0.2), 5, 0, True, 5, ""),
        ((-0.2, -0.001), 5, 3, False, 3, ""),
        ((-0.02, 0.2), 5, 3, True, 5, TOO_FEW_SEEDS),
        ((-0.02, 0.2), 5, 3, False, 5, TOO_FEW_LANGUAGES),
        ((0.001, 0.2), 5, 1, False, 5, ONE_RUN),
        ((0.001, 0.2), 5, 3, False, 2, TOO_FEW_GROUPS),
        ((0.001, 0.2), 2, 3, False, 2, ""),
        ((-0.0099, 0.0099), 5, 3, True, 5, NEAR_ZERO),
        ((-0.0099, 0.0099), 5, 1, True, 5, ONE_RUN),
        ((-0.011, 0.0099), 5, 3, True, 5, TOO_FEW_SEEDS),
        (None, 2, 2, True, 2, TOO_FEW),
    ],
)
def test_undecided_differences_say_why(
    ends: tuple[float, float] | None, languages: int, seeds: int, by_seeds: bool, groups: int, why: str
) -> None:
    assert reason(ends, languages, seeds, by_seeds, groups) == why
