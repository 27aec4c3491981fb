"""Confidence intervals of differences between arms, with languages and seeds as crossed random effects."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import chi2
from scipy.stats import t as student

FEWEST = 3  # languages or seeds of an interval: two tell almost nothing about a variance
TOO_FEW = "too few languages and seeds"
TOO_FEW_SEEDS = "too few seeds"
TOO_FEW_LANGUAGES = "too few languages"
NEAR_ZERO = "no difference of more than 1 point"
_POINT = 0.01
_LEVEL = 0.95
_NODES = 64  # of each quadrature
_MAX_DEGREES = 1000.0  # beyond it Student's distribution is the normal one

Array = NDArray[np.float64]


class Uncertainty(NamedTuple):
    """Of a difference of means: standard error, degrees of freedom, and whether seeds add more to it than languages."""

    standard_error: Array
    degrees: Array
    by_seeds: NDArray[np.bool_]


class _Term(NamedTuple):
    """A part of the variance of a mean, and its degrees of freedom."""

    variance: Array
    degrees: int


class _Parts(NamedTuple):
    """The variance of a mean as languages, seeds and both together show it; None where there is only one of them."""

    languages: _Term | None
    seeds: _Term | None
    both: Array | float


def paired_uncertainty(arms: Array) -> Uncertainty:
    """The uncertainty of the difference between any two arms, from the variances of all of them.

    A score is the arm's mean plus an effect of the language, one of the seed and a rest, all random and crossed
    (Henderson 1953; Satterthwaite 1946). What all arms have in common in a language or seed cancels. The result is
    about other languages and seeds like these, and not about other test sentences.

    Args:
        arms: [..., arms, languages, seeds] scores, every arm in the same languages and with the same seeds.
    """
    centred = arms - arms.mean(axis=-3, keepdims=True)
    parts = _split(np.sqrt(2) * centred, arms.shape[-3] - 1)
    return _combine([parts.languages], [parts.seeds], parts.both)


def unpaired_uncertainty(first: Array, second: Array) -> Uncertainty:
    """The uncertainty of the difference of two arms that have languages in common and seeds of their own.

    Args:
        first: [..., languages, seeds] scores.
        second: [..., languages, other seeds] scores.
    """
    gaps = first.mean(axis=-1) - second.mean(axis=-1)
    languages = _split(gaps[..., None, :, None], 1).languages
    one, other = (_split(values[..., None, :, :], 1) for values in (first, second))
    return _combine([languages], [one.seeds, other.seeds], one.both + other.both)


def uncertainty(values: Array, base: Array, paired: bool) -> Uncertainty:
    """That of the mean of `values` less that of `base`; arguments as of `difference_interval`."""
    return paired_uncertainty(np.stack([values, base])) if paired else unpaired_uncertainty(values, base)


def difference_interval(values: Array, base: Array, paired: bool, comparisons: int = 1) -> tuple[float, float] | None:
    """The 95 % confidence interval of the mean of `values` less that of `base`.

    Args:
        values: [languages, seeds] the scores of one arm.
        base: [languages, seeds of the baseline] those of the other, the same languages.
        paired: whether the seeds are the same too.
        comparisons: intervals that are all to be right in 95 % of the cases (Bonferroni).

    Returns:
        Lower and upper end; None for fewer than `FEWEST` languages and fewer than `FEWEST` seeds.
    """
    if max(len(values), min(values.shape[1], base.shape[1])) < FEWEST:
        return None
    found = uncertainty(values, base, paired)
    return interval(values.mean() - base.mean(), found, student.ppf(1 - (1 - _LEVEL) / 2 / comparisons, found.degrees))


def interval(difference: float, found: Uncertainty, reach: Array) -> tuple[float, float]:
    """Both ends, so many standard errors to either side of a difference."""
    return float(difference - reach * found.standard_error), float(difference + reach * found.standard_error)


def critical(degrees: Array, comparisons: int) -> Array:
    """How many standard errors an interval reaches so that all of several are right in 95 % of the cases.

    The differences are those of several arms from one baseline, with a standard error that they share (Dunnett 1955);
    of one difference it is Student's quantile.
    """
    inverse, ratios = _dunnett_ratios(comparisons)
    return student.ppf((1 + _LEVEL) / 2, degrees) * np.interp(1 / degrees, inverse, ratios)


def correlation_interval(correlation: Array, arms: int) -> tuple[Array, Array]:
    """The 95 % interval of Spearman's correlation over arms (Fisher's z, variance of Bonett and Wright 2000)."""
    reach = ndtri((1 + _LEVEL) / 2) * np.sqrt((1 + correlation**2 / 2) / (arms - 3))
    centre = np.arctanh(np.clip(correlation, -0.999, 0.999))
    return np.tanh(centre - reach), np.tanh(centre + reach)


def reason(ends: tuple[float, float] | None, languages: int, seeds: int, by_seeds: bool) -> str:
    """Why a difference is undecided; empty where its interval excludes zero.

    Args:
        ends: of the interval of a difference of shares in [0, 1].
        languages: that it is over.
        seeds: of the side that has fewer.
        by_seeds: whether seeds add more to its width than languages.
    """
    if ends is None:
        return TOO_FEW
    low, high = ends
    if low > 0 or high < 0:
        return ""
    if low > -_POINT and high < _POINT:
        return NEAR_ZERO
    return TOO_FEW_SEEDS if by_seeds or seeds == 1 or languages == 1 else TOO_FEW_LANGUAGES


def _split(values: Array, free: int) -> _Parts:
    """Mean squares of [..., arms, languages, seeds] values, each as the variance of a mean over all cells.

    `free` is the number of arms of which the values are independent.
    """
    languages, seeds = values.shape[-2:]
    mean = values.mean(axis=(-2, -1), keepdims=True)
    rows, columns = (values.mean(axis=axis, keepdims=True) - mean for axis in (-1, -2))
    rest = values - mean - rows - columns

    def term(deviations: Array, degrees: int, count: int) -> _Term | None:
        squares = (deviations**2).sum(axis=(-3, -2, -1))
        return _Term(squares / (degrees * count), degrees) if degrees else None

    both = term(rest, free * (languages - 1) * (seeds - 1), languages * seeds)
    return _Parts(
        term(rows, free * (languages - 1), languages),
        term(columns, free * (seeds - 1), seeds),
        both.variance if both else 0.0,
    )


def _combine(languages: list[_Term | None], seeds: list[_Term | None], both: Array | float) -> Uncertainty:
    """Adds the variances that languages and seeds show; what is in both of them counts once.

    The sum never falls below one of the two, as it could where a component is estimated to be negative. Satterthwaite's
    degrees of freedom are too many where a term of few degrees happens to be small: it then weighs (1 + 2 / degrees)^2.
    """
    of_languages, of_seeds = ([term for term in terms if term] for terms in (languages, seeds))
    if len(of_seeds) < len(seeds):
        of_seeds = []  # a side of one seed tells nothing about others
    by_language, by_seed = (
        np.asarray(sum(term.variance for term in terms), float) for terms in (of_languages, of_seeds)
    )
    larger = np.maximum(by_language, by_seed)
    variance = np.maximum(by_language + by_seed - both, larger) if of_languages and of_seeds else larger
    total, spread = np.zeros_like(variance), np.zeros_like(variance)
    for term in of_languages + of_seeds:
        weight = term.variance * (1 + 2 / term.degrees) ** 2
        total, spread = total + weight, spread + weight**2 / term.degrees
    degrees = np.divide(total**2, spread, out=np.full_like(variance, _MAX_DEGREES), where=spread > 0)
    return Uncertainty(np.sqrt(variance), np.minimum(degrees, _MAX_DEGREES), by_seed > by_language)


@lru_cache(maxsize=32)
def _dunnett_ratios(comparisons: int) -> tuple[Array, Array]:
    """Inverse degrees of freedom, and Dunnett's quantile over Student's at each; smooth enough for straight lines."""
    inverse = np.linspace(1 / _MAX_DEGREES, 1, 10)
    if comparisons == 1:
        return inverse, np.ones_like(inverse)
    alone, bonferroni = (student.ppf(1 - (1 - _LEVEL) / 2 / count, 1 / inverse) for count in (1, comparisons))
    found = [
        brentq(lambda reach, own=own: _all_within(reach, own, comparisons) - _LEVEL, low, high, xtol=1e-4)
        for own, low, high in zip(1 / inverse, alone, bonferroni, strict=True)
    ]
    return inverse, np.array(found) / alone


def _all_within(reach: float, degrees: float, comparisons: int) -> float:
    """The probability that all differences from one baseline, over their standard error, lie within +-reach.

    A difference is (z_i - z_0) / (sqrt(2) s) with normal z and degrees * s^2 distributed as chi^2.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    shares, weights = (nodes + 1) / 2, weights / 2
    base = ndtri(shares)[:, None]
    widths = np.sqrt(2) * reach * np.sqrt(chi2.ppf(shares, degrees) / degrees)
    inside = (ndtr(base + widths) - ndtr(base - widths)) ** comparisons
    return float(weights @ inside @ weights)
