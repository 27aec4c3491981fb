"""Differences between encoders with 95 % confidence intervals over languages and seeds; intervals over sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xalign_ray.results.aggregate import RUN, ScoreTable

LEVEL = 0.95
_NORMAL = NormalDist().inv_cdf((1 + LEVEL) / 2)

Array = NDArray[np.float64]
Interval = tuple[float, float]


def _student(share: ArrayLike, degrees: ArrayLike) -> Array:
    """Student's quantile."""
    from scipy.stats import t  # takes half a second to import, and a machine that only trains may lack it

    return t.ppf(share, degrees)


def spearman(first: ArrayLike, second: ArrayLike) -> Array:
    """Spearman's rank correlation over the last axis; NaN where a series has no two different values."""
    from scipy.stats import rankdata

    ranks = (rankdata(np.asarray(series, float), axis=-1) for series in (first, second))
    one, other = (rank - rank.mean(axis=-1, keepdims=True) for rank in ranks)
    with np.errstate(invalid="ignore"):
        return (one * other).sum(axis=-1) / np.sqrt((one**2).sum(axis=-1) * (other**2).sum(axis=-1))


def correlation_interval(correlation: Array, arms: int) -> tuple[Array, Array]:
    """The 95 % interval of Spearman's correlation over arms (Fisher's z, variance of Bonett and Wright 2000)."""
    reach = _NORMAL * np.sqrt((1 + correlation**2 / 2) / (arms - 3))
    centre = np.arctanh(np.clip(correlation, -0.999, 0.999))
    return np.tanh(centre - reach), np.tanh(centre + reach)


@dataclass(frozen=True)
class MeanEstimate:
    """A mean or a difference of means, whose error over `standard_error` has Student's distribution."""

    value: float
    standard_error: float
    degrees: float = np.inf

    def interval(self, error: float = 1 - LEVEL) -> Interval:
        """Leaves out the true value with probability `error`."""
        reach = float(_student(1 - error / 2, self.degrees)) * self.standard_error
        return self.value - reach, self.value + reach

    @property
    def p_value(self) -> float:
        """Of a true value of 0, two-sided; 1 where the value is 0 without an error."""
        from scipy.stats import t

        if not self.standard_error:
            return float(self.value == 0)
        return float(2 * t.sf(abs(self.value) / self.standard_error, self.degrees))


def holm_intervals(estimates: Sequence[MeanEstimate]) -> list[Interval]:
    """Intervals of several estimates, of which any wrongly excludes 0 in at most 5 % of the cases (Holm 1979).

    Of m estimates the k-th in the order of p-values is tested at 5 % / (m - k + 1), down to the first that is not
    significant. A significant one has the interval of its own test. All others have the interval of the first test
    (Bonferroni), so that what else is read off them, such as a loss below a margin, allows for their number too.
    """
    errors, count = {}, len(estimates)
    for rank, index in enumerate(sorted(range(count), key=lambda index: estimates[index].p_value)):
        error = (1 - LEVEL) / (count - rank)
        if estimates[index].p_value > error:
            break
        errors[index] = error
    return [estimate.interval(errors.get(index, (1 - LEVEL) / count)) for index, estimate in enumerate(estimates)]


def accuracy_gain(base: Array, yours: Array) -> MeanEstimate:
    """mean(yours) - mean(base) of scores in [0, 1] of the same sentences, with its error over other sentences.

    Bonett and Price (2012) for paired proportions: a normal interval after one sentence gained and one lost are added.
    Without them an interval is far too narrow where few sentences change, and empty where none does. Scores between 0
    and 1, such as the mean of two directions, have a smaller variance, so that it holds for them too.

    Args:
        base, yours: `[N]` each.
    """
    gaps = np.concatenate([yours - base, [1.0, -1.0]])
    return MeanEstimate(float(gaps.mean()), float(gaps.std() / np.sqrt(len(gaps))))


def share_interval(share: float, n: int) -> Interval:
    """The interval of a share of `n` independent questions (Wilson 1927)."""
    from scipy.stats import binomtest

    found = binomtest(round(share * n), n).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def ratio(totals: Array, counts: Array | None = None) -> MeanEstimate | None:
    """sum(totals) / sum(counts), such as a loss a label over sentences of different length; a mean without counts.

    The variance is that of a ratio estimator (Cochran 1977, 2.9).

    Args:
        totals, counts: of each sentence, `[N]`.

    Returns:
        None of fewer than two sentences.
    """
    number = len(totals)
    if number < 2:
        return None
    counts = np.ones(number) if counts is None else counts
    value = totals.sum() / counts.sum()
    deviations = (totals - value * counts) / counts.mean()
    return MeanEstimate(float(value), float(deviations.std(ddof=1) / np.sqrt(number)), number - 1)


FEWEST = 3  # languages or seeds of an interval: two tell almost nothing about a variance
TOO_FEW = "too few languages and seeds"
TOO_FEW_SEEDS = "too few seeds"
TOO_FEW_LANGUAGES = "too few languages"
NEAR_ZERO = "no difference of more than 1 point"
_POINT = 0.01
_NODES = 64  # of each quadrature
_MAX_DEGREES = 1000.0  # beyond it Student's distribution is the normal one


@dataclass(frozen=True)
class Difference:
    """The mean of an arm less that of another, over the languages that both have.

    Attributes:
        estimate: over the seeds that both have, over all seeds of each where none is in common.
        interval: None for fewer than `FEWEST` languages and fewer than `FEWEST` seeds.
        by_seeds: whether seeds add more to the interval's width than languages.
        languages, seeds: in common.
        fewest_seeds: of the arm that has fewer.
        seeds_of_trained: the same, without an arm of one run of no known seed, such as a released encoder; 0 of two.
        of_seeds: the difference in each common seed.
        comparisons: intervals that are all right in 95 % of the cases.
    """

    estimate: float
    interval: Interval | None
    by_seeds: bool
    languages: int
    seeds: int
    fewest_seeds: int
    seeds_of_trained: int
    of_seeds: tuple[float, ...]
    comparisons: int

    def undecided(self, least: float = 0.0) -> str:
        """Why it is not known whether the difference is above or below `least`; empty where it is."""
        shifted = self.interval and (self.interval[0] - least, self.interval[1] - least)
        why = reason(shifted, self.languages, self.seeds_of_trained, self.by_seeds)
        return f"within 1 point of {100 * least:g}" if least and why == NEAR_ZERO else why


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


def difference(arm: ScoreTable, base: ScoreTable, comparisons: int = 1) -> Difference | None:
    """The mean of `arm` less that of `base`; None where no language is in common.

    Args:
        arm, base: the scores of one measurement.
        comparisons: intervals that are all to be right in 95 % of the cases (Bonferroni).
    """
    own, other = _common(arm, base)
    if not len(own):
        return None
    paired = own.seeds == other.seeds
    found = (
        paired_uncertainty(np.stack([own.values, other.values]))
        if paired
        else unpaired_uncertainty(own.values, other.values)
    )
    reach = _student(1 - (1 - LEVEL) / 2 / comparisons, found.degrees)
    return _describe(own, other, found, reach, comparisons)


def differences_from(arms: Mapping[str, ScoreTable], base: ScoreTable) -> dict[str, Difference]:
    """The difference of each arm from one baseline, with intervals that are all right in 95 % of the cases.

    So whichever arm is the best, the interval of its difference is honest. Arms that have all languages and seeds in
    common share the estimate of variance (Dunnett 1955).
    """
    every = {label: both for label, arm in arms.items() if len((both := _common(arm, base))[0])}
    found: dict[str, Difference] = {}
    for label, (own, other) in every.items():
        names = own.languages, own.seeds
        alike = [
            arm.values for arm, _ in every.values() if own.seeds == other.seeds and names == (arm.languages, arm.seeds)
        ]
        if len(alike) > 1:
            shared = paired_uncertainty(np.stack([other.values, *alike]))
            found[label] = _describe(own, other, shared, critical(shared.degrees, len(every)), len(every))
        elif alone := difference(own, other, len(every)):
            found[label] = alone
    return found


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

    An arm of one seed, such as a released encoder, tells nothing about others of its own; the seeds of the other count.

    Args:
        first: [..., languages, seeds] scores.
        second: [..., languages, other seeds] scores.
    """
    gaps = first.mean(axis=-1) - second.mean(axis=-1)
    languages = _split(gaps[..., None, :, None], 1).languages
    one, other = (_split(values[..., None, :, :], 1) for values in (first, second))
    return _combine([languages], [one.seeds, other.seeds], one.both + other.both)


def critical(degrees: Array, comparisons: int) -> Array:
    """How many standard errors an interval reaches so that all of several are right in 95 % of the cases.

    The differences are those of several arms from one baseline, with a standard error that they share (Dunnett 1955);
    of one difference it is Student's quantile.
    """
    inverse, ratios = _dunnett_ratios(comparisons)
    return _student((1 + LEVEL) / 2, degrees) * np.interp(1 / degrees, inverse, ratios)


def reason(ends: Interval | None, languages: int, seeds: int, by_seeds: bool) -> str:
    """Why a difference is undecided; empty where its interval excludes zero.

    Args:
        ends: of the interval of a difference of shares in [0, 1].
        languages: that it is over.
        seeds: of the arm that has fewer; 0 where none has any.
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


def _common(arm: ScoreTable, base: ScoreTable) -> tuple[ScoreTable, ScoreTable]:
    """Both in the languages that both have, with the seeds that both have if there are any."""
    seeds = {*arm.seeds} & {*base.seeds} or None
    return arm.within(base.languages, seeds), base.within(arm.languages, seeds)


def _describe(own: ScoreTable, other: ScoreTable, found: Uncertainty, reach: Array, comparisons: int) -> Difference:
    paired, every = own.seeds == other.seeds, [own.seeds, other.seeds]
    fewest = min(map(len, every))
    estimate, width = own.average.mean - other.average.mean, float(reach * found.standard_error)
    gaps = own.average.of_seeds - other.average.of_seeds if paired else np.empty(0)
    return Difference(
        estimate,
        (estimate - width, estimate + width) if max(len(own), fewest) >= FEWEST else None,
        bool(found.by_seeds),
        len(own),
        len(own.seeds) if paired else 0,
        fewest,
        min((len(seeds) for seeds in every if len(seeds) > 1 or not seeds[0].startswith(RUN)), default=0),
        tuple(gaps.tolist()),
        comparisons,
    )


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
    """Inverse degrees of freedom, and Dunnett's quantile over Student's at each; smooth enough for straight lines.

    Not scipy.stats.dunnett: its distribution function is drawn at random, and takes one degree of freedom at a time.
    """
    from scipy.optimize import brentq

    inverse = np.linspace(1 / _MAX_DEGREES, 1, 10)
    if comparisons == 1:
        return inverse, np.ones_like(inverse)
    alone, bonferroni = (_student(1 - (1 - LEVEL) / 2 / count, 1 / inverse) for count in (1, comparisons))
    found = [
        brentq(lambda reach, own=own: _all_within(reach, own, comparisons) - LEVEL, low, high, xtol=1e-4)
        for own, low, high in zip(1 / inverse, alone, bonferroni, strict=True)
    ]
    return inverse, np.array(found) / alone


def _all_within(reach: float, degrees: float, comparisons: int) -> float:
    """The probability that all differences from one baseline, over their standard error, lie within +-reach.

    A difference is (z_i - z_0) / (sqrt(2) s) with normal z and degrees * s^2 distributed as chi^2.
    """
    from scipy.special import ndtr, ndtri
    from scipy.stats import chi2

    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    shares, weights = (nodes + 1) / 2, weights / 2
    base = ndtri(shares)[:, None]
    widths = np.sqrt(2) * reach * np.sqrt(chi2.ppf(shares, degrees) / degrees)
    inside = (ndtr(base + widths) - ndtr(base - widths)) ** comparisons
    return float(weights @ inside @ weights)
