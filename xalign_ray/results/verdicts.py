"""Judges the papers' claims by a study's scores: holds, does not hold or undecided, by 95 % confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np

from xalign_ray.results.aggregate import mean_and_deviation
from xalign_ray.results.claims import Claim, Correlation, Coverage, Near, Order, read_claims
from xalign_ray.results.intervals import (
    TOO_FEW,
    TOO_FEW_LANGUAGES,
    TOO_FEW_SEEDS,
    correlation_interval,
    difference_interval,
    reason,
    uncertainty,
)
from xalign_ray.results.quantities import Measured, Values
from xalign_ray.results.spearman import spearman

HOLDS, DOES_NOT, UNDECIDED = "holds", "does not hold", "undecided"
FEWEST_ARMS = 10  # of a correlation that is judged: arms are the sample, languages and seeds are repetitions

Interval = tuple[float, float]


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes:
        name, claim: as `read_claims` has them.
        verdict: HOLDS, DOES_NOT or UNDECIDED.
        why: of UNDECIDED, what is missing, or that there is no difference of more than 1 point; empty otherwise.
        ours: mean and deviation over seeds of each arm, of each gain of a coverage claim; none of a correlation.
        estimates: of what must lie on the claim's side of zero: each arm less the next, the difference of two gains,
            or the correlation.
        intervals: 95 % of each estimate.
        languages, seeds: that all arms have.
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

    A claim holds where the 95 % interval of each of its steps lies on its side of zero, or of `by` or `within` points,
    and does not where one lies on the other side. The intervals of several steps are all right in 95 % of the cases.
    One seed is undecided: nothing is known of another.
    """
    if missing := [arm for arm in claim.arms if arm not in scores.labels]:
        return Verdict(name, claim, UNDECIDED, f"no {', '.join(missing)}")
    if isinstance(claim, Correlation):
        return _judge_correlation(name, claim, scores)
    if isinstance(claim, Near):
        return _judge_near(name, claim, scores)
    return _judge_coverage(name, claim, scores) if isinstance(claim, Coverage) else _judge_order(name, claim, scores)


def _judge_order(name: str, claim: Order, scores: Measured) -> Verdict:
    arms = scores.values_of(claim.quantities)
    languages = arms[0].index
    for arm in arms[1:]:
        languages = languages.intersection(arm.index)
    arms = [arm.loc[languages] for arm in arms]
    if not len(languages):
        why = scores.why_apart(claim.quantities) or f"no {claim.measure.metric} of all arms in one language"
        return Verdict(name, claim, UNDECIDED, why)
    pairs = [_pair(*both) for both in pairwise(arms)]
    seeds = min(one.shape[1] for pair in pairs for one in pair[:2])
    known = {
        "ours": [mean_and_deviation(arm) for arm in arms],
        "estimates": [float(first.mean() - second.mean()) for first, second, _ in pairs],
        "languages": len(languages),
        "seeds": seeds,
    }
    found = [_less(claim.by, difference_interval(*pair, comparisons=len(pairs))) for pair in pairs]
    reasons = [
        reason(ends, len(languages), seeds, bool(uncertainty(*pair).by_seeds))
        for ends, pair in zip(found, pairs, strict=True)
    ]
    found = _decide(name, claim, found, reasons, known)
    return replace(found, intervals=[_less(-claim.by, ends) or ends for ends in found.intervals])


def _less(points: float, ends: Interval | None) -> Interval | None:
    return (ends[0] - points / 100, ends[1] - points / 100) if ends else None


def _judge_near(name: str, claim: Near, scores: Measured) -> Verdict:
    arms = [arm.to_numpy(float) for arm in scores.values_of(claim.quantities)]
    if not all(map(len, arms)):
        why = scores.why_apart(claim.quantities) or f"no {claim.measure.metric} of all arms"
        return Verdict(name, claim, UNDECIDED, why)
    pairs = [(arm, np.zeros_like(arm), True) for arm in arms]
    found = [difference_interval(*pair, comparisons=len(pairs)) for pair in pairs]
    limit, seeds = claim.within / 100, min(arm.shape[1] for arm in arms)
    known = {
        "estimates": [float(arm.mean()) for arm in arms],
        "intervals": [ends for ends in found if ends],
        "languages": min(map(len, arms)),
        "seeds": seeds,
    }
    if seeds < 2 or not all(found):
        return Verdict(name, claim, UNDECIDED, f"{TOO_FEW_SEEDS} (one)" if seeds < 2 else TOO_FEW, **known)
    if all(-limit < low and high < limit for low, high in known["intervals"]):
        return Verdict(name, claim, HOLDS, **known)
    if any(low > limit or high < -limit for low, high in known["intervals"]):
        return Verdict(name, claim, DOES_NOT, **known)
    by_seeds = any(bool(uncertainty(*pair).by_seeds) for pair in pairs) or known["languages"] == 1
    return Verdict(name, claim, UNDECIDED, TOO_FEW_SEEDS if by_seeds else TOO_FEW_LANGUAGES, **known)


def _judge_coverage(name: str, claim: Coverage, scores: Measured) -> Verdict:
    having, lacking = scores.values_of(claim.quantities)
    if not len(having) or not len(lacking):
        without = "with" if not len(having) else "without"
        missing = f"no language {without} a dictionary has {claim.measure.metric}"
        return Verdict(name, claim, UNDECIDED, scores.why_apart(claim.quantities) or missing)
    gains = [one.to_numpy(float) for one in (having, lacking)]
    known = {
        "ours": [mean_and_deviation(one) for one in gains],
        "estimates": [float(gains[0].mean() - gains[1].mean())],
        "languages": len(having) + len(lacking),
        "seeds": having.shape[1],
    }
    # Both groups have the same seeds, and languages of their own: the roles of the two are exchanged.
    having_first = [one.T for one in gains]
    ends = difference_interval(*having_first, paired=False)
    by_seeds = not bool(uncertainty(*having_first, paired=False).by_seeds)
    fewest = min(len(having), len(lacking))
    return _decide(name, claim, [ends], [reason(ends, fewest, having.shape[1], by_seeds)], known)


def _judge_correlation(name: str, claim: Correlation, scores: Measured) -> Verdict:
    points = correlated(claim, scores)
    arms, languages, seeds = points.x.shape
    if not languages or not seeds:
        wanted = [[measure.model_copy(update={"label": arm}) for arm in claim.arms] for measure in (claim.x, claim.y)]
        why = next(
            filter(None, map(scores.why_apart, wanted)), f"no {claim.x.metric} with {claim.y.metric} of all arms"
        )
        return Verdict(name, claim, UNDECIDED, why)
    known = {"languages": languages, "seeds": seeds}
    if arms < FEWEST_ARMS or np.isnan(points.over_arms):
        why = (
            f"described, not judged: {arms} arms, fewer than {FEWEST_ARMS}"
            if arms < FEWEST_ARMS
            else "all arms are equal"
        )
        return Verdict(name, claim, UNDECIDED, why, estimates=[points.correlation], **known)
    known |= {"estimates": [points.over_arms]}
    low, high = correlation_interval(np.array(points.over_arms), arms)
    ends = float(low), float(high)
    return _decide(name, claim, [ends], ["too few arms"], known, 1 if claim.sign == "positive" else -1)


@dataclass(frozen=True)
class Points:
    """What is correlated: x and y are [arms, languages, seeds]."""

    arms: Sequence[str]
    languages: Sequence[str]
    x: np.ndarray
    y: np.ndarray

    @property
    def correlation(self) -> float:
        """Spearman's over arms and languages, of the means of seeds."""
        return float(spearman(*(one.mean(axis=-1).ravel() for one in (self.x, self.y))))

    @property
    def over_arms(self) -> float:
        """Spearman's over arms alone, of the means of languages and seeds."""
        return float(spearman(*(one.mean(axis=(1, 2)) for one in (self.x, self.y))))


def correlated(claim: Correlation, scores: Measured) -> Points:
    """The values of both measures that all arms have in common languages and seeds."""
    tables = [
        scores.values_of([measure.model_copy(update={"label": arm}) for arm in claim.arms])
        for measure in (claim.x, claim.y)
    ]
    languages, seeds = tables[0][0].index, tables[0][0].columns
    for table in chain.from_iterable(tables):
        languages, seeds = languages.intersection(table.index), seeds.intersection(table.columns)
    x, y = (np.stack([table.loc[languages, seeds].to_numpy(float) for table in row]) for row in tables)
    return Points(claim.arms, list(languages), x, y)


def _pair(first: Values, second: Values) -> tuple[np.ndarray, np.ndarray, bool]:
    """Two arms over the seeds that both have; over all seeds of each where none is in common."""
    common = first.columns.intersection(second.columns)
    arms = (first[common], second[common]) if len(common) else (first, second)
    return arms[0].to_numpy(float), arms[1].to_numpy(float), bool(len(common))


def _decide(
    name: str,
    claim: Claim,
    found: Sequence[Interval | None],
    reasons: Sequence[str],
    known: Mapping[str, Any],
    sign: int = 1,
) -> Verdict:
    """The verdict of intervals, all of which are to be above zero after `sign`; reasons say why one includes it."""
    intervals = [ends for ends in found if ends]
    if known["seeds"] < 2:
        return Verdict(name, claim, UNDECIDED, f"{TOO_FEW_SEEDS} (one)", intervals=intervals, **known)
    signed = [sorted((sign * ends[0], sign * ends[1])) if ends else (-np.inf, np.inf) for ends in found]
    if all(low > 0 for low, _ in signed):
        return Verdict(name, claim, HOLDS, intervals=intervals, **known)
    if any(high < 0 for _, high in signed):
        return Verdict(name, claim, DOES_NOT, intervals=intervals, **known)
    why = next(why for (low, _), why in zip(signed, reasons, strict=True) if low <= 0)
    return Verdict(name, claim, UNDECIDED, why, intervals=intervals, **known)
