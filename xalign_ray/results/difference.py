"""Differences between encoders with 95 % confidence intervals over languages and seeds; intervals over sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.95
RUN = "run"  # how the name of a seed that is not known begins
_STANDARD_ERRORS = 2  # of guessing, up to which a score is at chance
_NORMAL = NormalDist().inv_cdf((1 + LEVEL) / 2)

Array = NDArray[np.float64]
Interval = tuple[float, float]


@dataclass(frozen=True)
class MeanEstimate:
    """A mean or a difference of means, whose error over `standard_error` has Student's distribution."""

    value: float
    standard_error: float
    degrees: float = np.inf

    def interval(self, error: float = 1 - LEVEL) -> Interval:
        """Leaves out the true value with probability `error`."""
        from scipy.stats import t  # takes half a second to import, and a machine that only trains may lack it

        reach = float(t.ppf(1 - error / 2, self.degrees)) * self.standard_error
        return self.value - reach, self.value + reach

    @property
    def p_value(self) -> float:
        """Of a true value of 0, two-sided; 1 where the value is 0 without an error."""
        from scipy.stats import t

        if not self.standard_error:
            return float(self.value == 0)
        return float(2 * t.sf(abs(self.value) / self.standard_error, self.degrees))


def holm_intervals(estimates: Sequence[MeanEstimate]) -> list[Interval]:
    """Intervals of several estimates; any of them wrongly excludes 0 in at most 5 % of the cases (Holm 1979).

    Of m estimates the k-th in the order of p-values is tested at 5 % / (m - k + 1), down to the first that is not
    significant. A significant one has the interval of its test. All others have the interval of the first test
    (Bonferroni), so that what else is read off them, such as a loss below a margin, allows for their number too.
    """
    errors, count = {}, len(estimates)
    for rank, index in enumerate(sorted(range(count), key=lambda index: estimates[index].p_value)):
        error = (1 - LEVEL) / (count - rank)
        if estimates[index].p_value > error:
            break
        errors[index] = error
    return [estimate.interval(errors.get(index, (1 - LEVEL) / count)) for index, estimate in enumerate(estimates)]


ADDED = 2  # sentences of `accuracy_gain`: one gained, one lost


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


def macro_interval(shares: Array, counts: Array) -> Interval:
    """The interval of the mean of shares of `counts` independent questions, such as over languages, about other ones.

    Each share has Wilson's interval (1927); their reaches add up as variances do (Newcombe 1998).

    Args:
        shares, counts: `[languages]` each.
    """
    squared = _NORMAL**2 / counts
    centres = (shares + squared / 2) / (1 + squared)
    reaches = np.sqrt(squared * (shares * (1 - shares) + squared / 4)) / (1 + squared)
    below, above = (np.sqrt(((centres + sign * reaches - shares) ** 2).sum()) / len(shares) for sign in (-1, 1))
    return float(shares.mean() - below), float(shares.mean() + above)


def guess_variance(chance: ArrayLike, n: ArrayLike) -> NDArray[np.float64]:
    """The binomial variance p (1 - p) / n of guessing `n` questions with p = chance; 0 where n is not known."""
    p, counts = np.asarray(chance, float), np.asarray(n, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(counts > 0, p * (1 - p) / counts, 0.0)


def is_at_chance(value: ArrayLike, chance: ArrayLike, variance: ArrayLike) -> NDArray[np.bool_]:
    """Whether values lie no more than two standard errors of guessing above chance; False where chance is not known."""
    return np.asarray(value, float) <= np.asarray(chance, float) + _STANDARD_ERRORS * np.sqrt(variance)


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


FEWEST = 3  # languages or seeds of an interval: two are too few for a variance
ONE_RUN = "one training run"
TOO_FEW = "too few languages and seeds"
TOO_FEW_SEEDS = "too few seeds"
TOO_FEW_LANGUAGES = "too few languages"
TOO_FEW_GROUPS = "too few groups of languages"
NEAR_ZERO = "no difference of more than 1 point"
_POINT = 0.01
_RELATED = 0.2  # simulated: right from 0 to 0.8, where 0 would be wrong of one large family beside small ones
_MAX_DEGREES = 1000.0  # beyond it Student's distribution is the normal one

Grouping = Callable[[Sequence[str]], Sequence[str]]  # the group of each language, such as its family


@dataclass(frozen=True)
class Difference:
    """The mean of an arm less that of another, over the languages that both have.

    Attributes:
        estimate: with its error; over the seeds that both have, over all seeds of each where none is in common.
        interval: None for fewer than `FEWEST` languages and fewer than `FEWEST` seeds.
        by_seeds: whether seeds add more to the interval's width than languages.
        languages, seeds: in common.
        groups: of the languages; their number where all are of one group.
        fewest_seeds: of the arm that has fewer.
        seeds_of_trained: the same, without an arm of one run of no known seed, such as a released encoder; 0 of two.
        comparisons: intervals that the interval allows for.
    """

    estimate: MeanEstimate
    interval: Interval | None
    by_seeds: bool
    languages: int
    groups: int
    seeds: int
    fewest_seeds: int
    seeds_of_trained: int
    comparisons: int = 1

    def undecided(self, least: float = 0.0) -> str:
        """Why it is not known whether the difference is above or below `least`; empty where it is."""
        shifted = self.interval and (self.interval[0] - least, self.interval[1] - least)
        why = reason(shifted, self.languages, self.seeds_of_trained, self.by_seeds, self.groups)
        return f"within 1 point of {100 * least:g}" if least and why == NEAR_ZERO else why


class Uncertainty(NamedTuple):
    """Of a difference of means: standard error, degrees of freedom, and whether seeds add more to it than languages."""

    standard_error: Array
    degrees: Array
    by_seeds: NDArray[np.bool_]


def difference(
    arm: pd.DataFrame, base: pd.DataFrame, comparisons: int = 1, group: Grouping | None = None
) -> Difference | None:
    """The mean of `arm` less that of `base`; None where no language is in common.

    Args:
        arm, base: [languages, seeds] scores of one measurement, with their names.
        comparisons: intervals that are all to be right in 95 % of the cases (Bonferroni).
        group: the languages of a group vary together; each is its own if None, or where all are of one group.
    """
    names = [(block.index.tolist(), block.columns.tolist()) for block in (arm, base)]
    (rows, own_seeds), (other_rows, other_seeds) = names
    languages = [name for name in rows if name in other_rows]
    if not languages:
        return None
    paired = [name for name in own_seeds if name in other_seeds]
    # By places: pandas' own look-up would take most of the time of a report on many languages.
    values, others = (
        block.to_numpy()[[*map(labels.index, languages)]][:, [*map(seeds.index, paired or seeds)]]
        for block, (labels, seeds) in zip((arm, base), names, strict=True)
    )
    groups = group(languages) if group else languages
    groups = groups if len({*groups}) > 1 else languages
    error = uncertainty(
        values.mean(axis=1) - others.mean(axis=1), [values - others] if paired else [values, others], groups
    )
    gap = values.mean(axis=0).mean() - others.mean(axis=0).mean()
    estimate = MeanEstimate(float(gap), float(error.standard_error), float(error.degrees))
    counted = [paired, paired] if paired else [own_seeds, other_seeds]
    fewest = min(map(len, counted))
    return Difference(
        estimate,
        estimate.interval((1 - LEVEL) / comparisons) if max(len(languages), fewest) >= FEWEST else None,
        bool(error.by_seeds),
        len(languages),
        len({*groups}),
        len(paired),
        fewest,
        min((len(seeds) for seeds in counted if len(seeds) > 1 or not seeds[0].startswith(RUN)), default=0),
        comparisons,
    )


def differences_from(
    arms: Mapping[str, pd.DataFrame], base: pd.DataFrame, group: Grouping | None = None
) -> dict[str, Difference]:
    """The difference of each arm from one baseline, each with its own variance.

    Any of the intervals wrongly excludes 0 in at most 5 % of the cases (Holm), so the best arm may be picked.
    """
    gaps = {label: gap for label, arm in arms.items() if (gap := difference(arm, base, group=group))}
    with_interval = [label for label, gap in gaps.items() if gap.interval]
    intervals = dict(zip(with_interval, holm_intervals([gaps[label].estimate for label in with_interval]), strict=True))
    return {
        label: replace(gap, interval=intervals.get(label), comparisons=max(1, len(with_interval)))
        for label, gap in gaps.items()
    }


def uncertainty(gaps: Array, tables: Sequence[Array], groups: Sequence[str]) -> Uncertainty:
    """The uncertainty of a difference of two arms, about other languages and seeds like these.

    A score is the arm's mean plus effects of the language, of its group and of the seed, and a rest, all random;
    languages and seeds are crossed (Henderson 1953; Satterthwaite 1946). It is not about other test sentences.

    Args:
        gaps: [..., languages] differences of the arms' means over seeds.
        tables: [..., languages, seeds] scores whose seeds vary: the differences where the arms have seeds in common,
            else the scores of each arm. A table of one seed, such as a released encoder's, is no guide to others.
        groups: the name of each language's group.
    """
    count = gaps.shape[-1]
    terms = [_of_groups(gaps, groups)] if count > 1 else []
    by_language = np.asarray(sum(variance for variance, _ in terms), float)
    by_seed, both = np.zeros(gaps.shape[:-1]), np.zeros(gaps.shape[:-1])
    for values in tables:
        if (seeds := values.shape[-1]) > 1:
            of_seeds = values.mean(axis=-2)
            terms.append((of_seeds.var(axis=-1, ddof=1) / seeds, seeds - 1.0))
            by_seed = by_seed + terms[-1][0]
            if count > 1:
                rest = values - values.mean(axis=-1, keepdims=True) - of_seeds[..., None, :]
                rest = rest + values.mean(axis=(-2, -1), keepdims=True)
                both = both + (rest**2).sum(axis=(-2, -1)) / ((count - 1) * (seeds - 1) * count * seeds)
    # The part in both languages and seeds counts once. The sum never falls below one of the two, as it could where a
    # component is estimated to be negative.
    variance = np.maximum(by_language + by_seed - both, np.maximum(by_language, by_seed))
    total, spread = np.zeros_like(variance), np.zeros_like(variance)
    for term, degrees in terms:
        # Satterthwaite's degrees of freedom are too many where a term of few degrees happens to be small.
        weight = term * (1 + 2 / degrees) ** 4
        total, spread = total + weight, spread + weight**2 / degrees
    degrees = np.divide(total**2, spread, out=np.full_like(variance, _MAX_DEGREES), where=spread > 0)
    return Uncertainty(np.sqrt(variance), np.minimum(degrees, _MAX_DEGREES), by_seed > by_language)


def smallest_decided(languages: int, seeds: int, spread: tuple[float, float], comparisons: int = 1) -> float:
    """The true difference that 80 % of the studies decide, in the unit of the spreads; 4,000 studies are drawn.

    Args:
        languages, seeds: of the design, two of each at least; the arms have their seeds in common.
        spread: standard deviation of the difference between languages and between seeds.
        comparisons: arms beside the baseline. The hardest test of Holm's is taken.
    """
    from scipy.stats import t

    rng = np.random.default_rng(0)
    errors = spread[0] * rng.standard_normal((4000, languages, 1))
    errors = errors + spread[1] * rng.standard_normal((4000, 1, seeds))
    of_each = uncertainty(errors.mean(axis=-1), [errors], [*map(str, range(languages))])
    reach = t.ppf(1 - (1 - LEVEL) / (2 * comparisons), of_each.degrees) * of_each.standard_error
    return float(np.quantile(reach - errors.mean(axis=(1, 2)), 0.8))


def _of_groups(gaps: Array, groups: Sequence[str]) -> tuple[Array, float]:
    """The variance of the mean of [..., languages] as its groups show it, and its degrees of freedom.

    The sums of each group's deviations, squared and scaled so that they are right for languages that are correlated by
    `_RELATED` within a group (Bell and McCaffrey 2002). Where each language is one group, it is the usual
    variance of a mean.
    """
    count = gaps.shape[-1]
    _, group_of = np.unique(groups, return_inverse=True)
    member = np.eye(group_of.max() + 1)[:, group_of]  # [groups, languages]
    related = _RELATED * member.T @ member + (1 - _RELATED) * np.eye(count)
    sums = member @ (np.eye(count) - 1 / count) / count
    covariance = sums @ related @ sums.T
    scale = np.trace(covariance)
    variance = ((gaps @ sums.T) ** 2).sum(axis=-1) / scale * related.sum() / count**2
    return variance, float(scale**2 / (covariance**2).sum())


def reason(ends: Interval | None, languages: int, seeds: int, by_seeds: bool, groups: int = FEWEST) -> str:
    """Why a difference is undecided; empty where its interval excludes zero.

    Args:
        ends: of the interval of a difference of shares in [0, 1].
        languages: that it is over.
        seeds: of the trained arm that has fewer: one run shows nothing about the next. 0 where none has any.
        by_seeds: whether seeds add more to its width than languages.
        groups: of related languages. Of two, any of ten intervals excludes a true zero in more than 8 % of the cases.
    """
    if ends is None:
        return TOO_FEW
    if seeds == 1:
        return ONE_RUN
    if groups < min(FEWEST, languages):
        return TOO_FEW_GROUPS
    low, high = ends
    if low > 0 or high < 0:
        return ""
    if low > -_POINT and high < _POINT:
        return NEAR_ZERO
    return TOO_FEW_SEEDS if by_seeds or languages == 1 else TOO_FEW_LANGUAGES
