"""The 95 % interval of a difference between two encoders, by a paired bootstrap over languages and seeds."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

FEWEST = 3  # languages or seeds: of two, a bootstrap sees little more than the two
_SAMPLES = 10_000
_LANGUAGES, _SEEDS, _BASE_SEEDS = 0, 1, 2  # streams of random numbers


def difference_interval(values: np.ndarray, base: np.ndarray, paired: bool) -> tuple[float, float] | None:
    """Between which numbers the mean of `values` less that of `base` lies in 95 % of the resampled experiments.

    In each of them languages are drawn with replacement, the same ones on both sides, and seeds as well (Efron and
    Tibshirani 1993, percentile interval; Koehn 2004 for the pairing). The interval is the same whenever it is asked
    for. It is about other languages and other seeds like these, not about other sentences.

    Args:
        values: [languages, seeds] the scores of one encoder.
        base: [languages, seeds of the baseline] those of the other, the same languages.
        paired: the seeds are the same too, and are drawn together.

    Returns:
        Lower and upper end; None for fewer than `FEWEST` languages and fewer than `FEWEST` seeds.
    """
    languages, seeds = values.shape
    if max(languages, min(seeds, base.shape[1])) < FEWEST:
        return None
    weights = _draw(languages, _LANGUAGES)
    means = _mean(values, weights, _draw(seeds, _SEEDS))
    means = means - _mean(base, weights, _draw(base.shape[1], _SEEDS if paired else _BASE_SEEDS))
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _mean(values: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """[draws] the weighted mean of all values in each draw."""
    return ((rows @ values) * columns).sum(axis=1)


@lru_cache(maxsize=64)
def _draw(count: int, stream: int) -> np.ndarray:
    """[draws, count] how much each of `count` things weighs in each draw, in all 1."""
    return np.random.default_rng((count, stream)).multinomial(count, [1 / count] * count, size=_SAMPLES) / count
