"""Judges the papers' claims by a study's scores: holds, does not hold, undecided, by a paired bootstrap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np

from xalign_ray.published.claims import Claim, Correlation, Coverage, Order, read_claims
from xalign_ray.published.spearman import spearman
from xalign_ray.report.compare import (
    FEWEST,
    LANGUAGES,
    OTHER_LANGUAGES,
    SEEDS,
    difference_interval,
    draw,
    resample,
)
from xalign_ray.report.quantities import Measured, Values, mean_and_deviation

HOLDS, DOES_NOT, UNDECIDED = "holds", "does not hold", "undecided"
_CHUNK = 500  # resampled experiments whose ranks are compared at once
_LEVELS = (0.025, 0.975)
_MAX_FLAT = 0.05  # of the resampled experiments, those in which all points are one

Interval = tuple[float, float]


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes:
        name, claim: as `read_claims` has them.
        verdict: HOLDS, DOES_NOT or UNDECIDED.
        why: what is missing where nothing could be judged; empty otherwise.
        ours: mean and deviation over seeds of each arm, of each gain of a coverage claim; none of a correlation.
        estimates: of what must lie on the claim's side of zero: each arm less the next, the difference of two gains,
            or the correlation.
        intervals: 95 % of each estimate.
        languages, seeds: that were drawn from.
    """

    name: str
    claim: Claim
    verdict: str
    why: str = ""
    ours: Sequence[tuple[float, float | None]] = ()
    estimates: Sequence[float] = ()
    intervals: Sequence[Interval] = ()
    languages: int = 0
    seeds: int = 0


def judge_all(papers: Sequence[str], scores: Measured) -> list[Verdict]:
    """A verdict for each claim of these papers, those first that could be judged at all."""
    every = [judge(name, claim, scores) for name, claim in read_claims().items() if claim.paper in papers]
    return sorted(every, key=lambda one: bool(one.why) and not one.seeds)


def judge(name: str, claim: Claim, scores: Measured) -> Verdict:
    """Judges a claim.

    In each of 10,000 resampled experiments languages and seeds are drawn with replacement, the same ones for all arms.
    A claim holds where 95 % of the experiments, in the middle, lie on its side of zero for every step of it, and does
    not where for one step they lie on the other side. One seed is undecided: nothing is known of another.
    """
    if missing := [arm for arm in claim.arms if arm not in scores.labels]:
        return Verdict(name, claim, UNDECIDED, f"no {', '.join(missing)}")
    if isinstance(claim, Correlation):
        return _judge_correlation(name, claim, scores)
    return _judge_coverage(name, claim, scores) if isinstance(claim, Coverage) else _judge_order(name, claim, scores)


def _judge_order(name: str, claim: Order, scores: Measured) -> Verdict:
    arms = [scores.values(quantity) for quantity in claim.quantities]
    languages = arms[0].index
    for arm in arms[1:]:
        languages = languages.intersection(arm.index)
    arms = [arm.loc[languages] for arm in arms]
    if not len(languages):
        return Verdict(name, claim, UNDECIDED, f"no {claim.measure.metric} of all arms in one language")
    pairs = [_pair(*both) for both in pairwise(arms)]
    seeds = min(one.shape[1] for pair in pairs for one in pair[:2])
    known = {
        "ours": [mean_and_deviation(arm) for arm in arms],
        "estimates": [float(first.mean() - second.mean()) for first, second, _ in pairs],
        "languages": len(languages),
        "seeds": seeds,
    }
    intervals = [difference_interval(*pair) for pair in pairs]
    return _decide(name, claim, [one for one in intervals if one], known)


def _judge_coverage(name: str, claim: Coverage, scores: Measured) -> Verdict:
    having, lacking = (scores.values(quantity) for quantity in claim.quantities)
    if not len(having) or not len(lacking):
        without = "with" if not len(having) else "without"
        return Verdict(name, claim, UNDECIDED, f"no language {without} a dictionary has {claim.measure.metric}")
    gains = [one.to_numpy(float) for one in (having, lacking)]
    known = {
        "ours": [mean_and_deviation(one) for one in (having, lacking)],
        "estimates": [float(gains[0].mean() - gains[1].mean())],
        "languages": len(having) + len(lacking),
        "seeds": having.shape[1],
    }
    intervals: list[Interval] = []
    if min(len(having), len(lacking)) >= FEWEST or having.shape[1] >= FEWEST:
        means = resample(gains[0]) - resample(gains[1], languages=OTHER_LANGUAGES)
        intervals = [_interval(means)]
    return _decide(name, claim, intervals, known)


def _judge_correlation(name: str, claim: Correlation, scores: Measured) -> Verdict:
    points = correlated(claim, scores)
    arms, languages, seeds = points.x.shape
    if arms * languages < FEWEST or not seeds:
        return Verdict(name, claim, UNDECIDED, f"no {claim.x.metric} with {claim.y.metric} of all arms")
    known = {"estimates": [points.correlation], "languages": languages, "seeds": seeds}
    found = _resampled_correlations(points)
    is_flat = np.isnan(found)
    intervals = [_interval(found[~is_flat])] if seeds > 1 and is_flat.mean() <= _MAX_FLAT else []
    return _decide(name, claim, intervals, known, 1 if claim.sign == "positive" else -1)


@dataclass(frozen=True)
class Points:
    """What is correlated: x and y are [arms, languages, seeds]."""

    arms: Sequence[str]
    languages: Sequence[str]
    x: np.ndarray
    y: np.ndarray

    @property
    def correlation(self) -> float:
        """Spearman's, over the means of seeds."""
        return float(spearman(*(one.mean(axis=-1).ravel() for one in (self.x, self.y))))


def correlated(claim: Correlation, scores: Measured) -> Points:
    """The values of both measures that all arms have in common languages and seeds."""
    tables = [
        [scores.values(measure.model_copy(update={"label": arm})) for arm in claim.arms]
        for measure in (claim.x, claim.y)
    ]
    languages, seeds = tables[0][0].index, tables[0][0].columns
    for table in chain.from_iterable(tables):
        languages, seeds = languages.intersection(table.index), seeds.intersection(table.columns)
    x, y = (np.stack([table.loc[languages, seeds].to_numpy(float) for table in row]) for row in tables)
    return Points(claim.arms, list(languages), x, y)


def _resampled_correlations(points: Points) -> np.ndarray:
    """[draws] Spearman's correlation of the languages and seeds that were drawn; NaN where all points are one."""
    count = len(points.languages)
    counts, weights = draw(count, LANGUAGES), draw(points.x.shape[-1], SEEDS)
    places = np.repeat(np.tile(np.arange(count), len(counts)), np.rint(counts * count).astype(int).ravel())
    places = places.reshape(len(counts), 1, count)

    def drawn(values: np.ndarray, part: slice) -> np.ndarray:
        means = np.einsum("als,ds->dal", values, weights[part])
        return np.take_along_axis(means, places[part], axis=2).reshape(len(means), -1)

    parts = [slice(start, start + _CHUNK) for start in range(0, len(counts), _CHUNK)]
    return np.concatenate([spearman(drawn(points.x, part), drawn(points.y, part)) for part in parts])


def _pair(first: Values, second: Values) -> tuple[np.ndarray, np.ndarray, bool]:
    """Two arms over the seeds that both have; over all seeds of each where none is in common."""
    common = first.columns.intersection(second.columns)
    arms = (first[common], second[common]) if len(common) else (first, second)
    return arms[0].to_numpy(float), arms[1].to_numpy(float), bool(len(common))


def _interval(estimates: np.ndarray) -> Interval:
    low, high = np.quantile(estimates, _LEVELS)
    return float(low), float(high)


def _decide(name: str, claim: Claim, intervals: Sequence[Interval], known: Mapping[str, Any], sign: int = 1) -> Verdict:
    if known["seeds"] < 2:
        return Verdict(name, claim, UNDECIDED, "one seed", intervals=intervals, **known)
    if len(intervals) < len(known["estimates"]):
        return Verdict(name, claim, UNDECIDED, "too few languages and seeds", intervals=intervals, **known)
    signed = [sorted((sign * low, sign * high)) for low, high in intervals]
    if all(low > 0 for low, _ in signed):
        return Verdict(name, claim, HOLDS, intervals=intervals, **known)
    verdict = DOES_NOT if any(high < 0 for _, high in signed) else UNDECIDED
    why = "" if verdict == DOES_NOT else "the interval includes zero"
    return Verdict(name, claim, verdict, why, intervals=intervals, **known)
