"""95 % confidence intervals over sentences, questions and ranks; those over languages and seeds: difference.py."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from scipy.stats import binomtest, rankdata
from scipy.stats import t as student

LEVEL = 0.95
_NORMAL = float(ndtri((1 + LEVEL) / 2))

Array = NDArray[np.float64]
Interval = tuple[float, float]


def spearman(first: ArrayLike, second: ArrayLike) -> Array:
    """Spearman's rank correlation over the last axis; NaN where a series has no two different values."""
    ranks = (rankdata(np.asarray(series, float), axis=-1) for series in (first, second))
    one, other = (rank - rank.mean(axis=-1, keepdims=True) for rank in ranks)
    with np.errstate(invalid="ignore"):
        return (one * other).sum(axis=-1) / np.sqrt((one**2).sum(axis=-1) * (other**2).sum(axis=-1))


def correlation_interval(correlation: Array, arms: int) -> tuple[Array, Array]:
    """The 95 % interval of Spearman's correlation over arms (Fisher's z, variance of Bonett and Wright 2000)."""
    reach = _NORMAL * np.sqrt((1 + correlation**2 / 2) / (arms - 3))
    centre = np.arctanh(np.clip(correlation, -0.999, 0.999))
    return np.tanh(centre - reach), np.tanh(centre + reach)


def accuracy_interval(base: Array, yours: Array) -> Interval:
    """The interval of mean(yours) - mean(base) of scores in [0, 1] of the same sentences, about other sentences.

    Bonett and Price (2012) for paired proportions: a normal interval after one sentence gained and one lost are added.
    Without them an interval is far too narrow where few sentences change, and empty where none does. Scores between 0
    and 1, such as the mean of two directions, have a smaller variance, so that it holds for them too.

    Args:
        base, yours: `[N]` each.
    """
    gaps = np.concatenate([yours - base, [1.0, -1.0]])
    reach = _NORMAL * gaps.std() / np.sqrt(len(gaps))
    return float(gaps.mean() - reach), float(gaps.mean() + reach)


def share_interval(share: float, n: int) -> Interval:
    """The interval of a share of `n` independent questions (Wilson 1927)."""
    found = binomtest(round(share * n), n).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def mean_interval(values: Array) -> Interval | None:
    """Student's interval of the mean of `[N]` sentences' values; None of fewer than two."""
    return ratio_interval(values, np.ones(len(values)))


def ratio_interval(totals: Array, counts: Array) -> Interval | None:
    """The interval of sum(totals) / sum(counts), such as a loss a label over sentences of different length.

    The variance is that of a ratio estimator (Cochran 1977, 2.9).

    Args:
        totals, counts: of each sentence, `[N]`.

    Returns:
        Lower and upper end; None of fewer than two sentences.
    """
    number = len(totals)
    if number < 2:
        return None
    ratio = totals.sum() / counts.sum()
    deviations = (totals - ratio * counts) / counts.mean()
    reach = student.ppf((1 + LEVEL) / 2, number - 1) * deviations.std(ddof=1) / np.sqrt(number)
    return float(ratio - reach), float(ratio + reach)
