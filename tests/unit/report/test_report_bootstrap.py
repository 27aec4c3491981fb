"""The interval of a difference: that of all resampled experiments, the same each time, absent where it says nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from xalign_ray.report.compare import difference_interval


def every_mean(values: np.ndarray, base: np.ndarray, paired: bool) -> Iterator[float]:
    """The difference in each of the equally likely resampled experiments, one after the other and cell by cell."""
    languages, seeds, others = len(values), values.shape[1], base.shape[1]
    for rows in product(range(languages), repeat=languages):
        for columns in product(range(seeds), repeat=seeds):
            for base_columns in [columns] if paired else product(range(others), repeat=others):
                own = [values[row, column] for row in rows for column in columns]
                other = [base[row, column] for row in rows for column in base_columns]
                yield sum(own) / len(own) - sum(other) / len(other)


@pytest.mark.parametrize(
    ("languages", "seeds", "others", "paired"), [(4, 1, 1, True), (4, 2, 2, True), (3, 2, 3, False)]
)
def test_the_interval_is_that_of_all_resampled_experiments(
    languages: int, seeds: int, others: int, paired: bool
) -> None:
    random = np.random.default_rng(3)
    values, base = random.normal(1, 1, (languages, seeds)), random.normal(0, 1, (languages, others))
    means = np.sort(list(every_mean(values, base, paired)))
    found = difference_interval(values, base, paired)
    assert found is not None
    # 10,000 draws: the ends lie between the exact quantiles a little to either side of the two.
    for end, level in zip(found, (0.025, 0.975), strict=True):
        low, high = np.quantile(means, [max(0, level - 0.006), min(1, level + 0.006)])
        assert low - 1e-12 <= end <= high + 1e-12


def test_an_equal_gain_in_every_language_and_seed_has_no_width() -> None:
    base = np.random.default_rng(0).random((5, 3))
    assert difference_interval(base + 0.125, base, paired=True) == pytest.approx((0.125, 0.125))


def test_seeds_of_its_own_make_an_interval_wider_than_shared_ones() -> None:
    base = np.tile([0.0, 1.0, 2.0, 3.0], (6, 1))
    paired, alone = (difference_interval(base + 0.5, base, paired) for paired in (True, False))
    assert paired == pytest.approx((0.5, 0.5))
    assert alone is not None
    assert alone[0] < 0 < 1 < alone[1]


def test_asked_again_it_is_the_same() -> None:
    values = np.random.default_rng(1).random((7, 2))
    assert difference_interval(values, values[::-1], True) == difference_interval(values, values[::-1], True)


@pytest.mark.parametrize(
    ("values", "base", "there"),
    [((2, 2), (2, 2), False), ((3, 1), (3, 1), True), ((1, 3), (1, 3), True), ((1, 3), (1, 2), False)],
)
def test_of_two_languages_and_two_seeds_there_is_none(
    values: tuple[int, int], base: tuple[int, int], there: bool
) -> None:
    assert (difference_interval(np.ones(values), np.zeros(base), values == base) is not None) is there
