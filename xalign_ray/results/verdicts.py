"""Judges the papers' claims by a study's scores: holds, does not hold or undecided, by 95 % confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from xalign_ray.results.aggregate import (
    ALL_LANGUAGES,
    EMPTY,
    Average,
    ScoreTable,
    aggregate,
    seed_values,
    without_layers,
)
from xalign_ray.results.compare import WITH, WITHOUT, known_groupings, other_languages, related_languages
from xalign_ray.results.difference import (
    FEWEST,
    TOO_FEW,
    TOO_FEW_GROUPS,
    TOO_FEW_LANGUAGES,
    TOO_FEW_SEEDS,
    Grouping,
    Interval,
    correlation_interval,
    difference,
    reason,
    spearman,
)
from xalign_ray.results.printed import ZERO_SHOT, Claim, Correlation, Coverage, Near, OrderClaim, Quantity, read_claims
from xalign_ray.results.run import Run, columns_of

HOLDS, DOES_NOT, UNDECIDED = "holds", "does not hold", "undecided"
FEWEST_ARMS = 10  # of a correlation that is judged: arms are the sample, languages and seeds are repetitions
STAND_INS = {"weam-tlm": "xlm", "ppa-2m": "ppa"}  # where a report lacks an arm: the same method in `study align`
COLUMNS = ["label", "metric", "test_set", "language", "seed", "value", "n", "chance", "place"]
_OF_DIRECTIONS = {"value": "mean", "n": "first", "chance": "first", "place": "min"}
_ENGLISH = "en"


@dataclass(frozen=True)
class Measured:
    """All scores of a report, one a label, metric, test set, language and seed.

    Attributes:
        frame: COLUMNS; a test set is a split with its layer and pooling, lower places are preferred. A pair with
            English is called by its other language.
        has_dictionary: whether a language has one in every run that has any; None of English, or where runs differ.
        group: of the languages that vary together, as `related_languages` has it.
    """

    frame: pd.DataFrame
    has_dictionary: Callable[[str], bool | None]
    group: Grouping | None = None

    @property
    def labels(self) -> list[str]:
        """Of the arms that have a score, in the order of the report."""
        return list(self.frame.label.unique())

    def values(self, quantity: Quantity) -> ScoreTable:
        """What is known of one quantity, as `values_of` has it."""
        return self.values_of([quantity])[0]

    def values_of(self, quantities: Sequence[Quantity]) -> list[ScoreTable]:
        """What is known of quantities that are compared with each other, all on one test set.

        Each has the languages that it is about and all its seeds have. All are empty where no test set is in common.
        """
        shared = self._test_sets(quantities)
        if not shared:
            return [EMPTY for _ in quantities]
        return [self._values(shared[0], quantity) for quantity in quantities]

    def why_apart(self, quantities: Sequence[Quantity]) -> str:
        """Why quantities that all have scores cannot be compared; empty where they can, or where one has none."""
        if self._test_sets(quantities):
            return ""
        own = {(part.label, part.metric): ", ".join(self._own_sets(part)) for part in _parts(quantities)}
        named = [f"{label} on {sets}" for (label, _), sets in own.items()]
        return f"not scored alike: {'; '.join(dict.fromkeys(named))}" if all(own.values()) else ""

    def _test_sets(self, quantities: Sequence[Quantity]) -> list[str]:
        """Those on which all quantities have scores, the preferred one first."""
        first, *others = map(self._own_sets, _parts(quantities))
        return [one for one in first if all(one in other for other in others)]

    @cached_property
    def _scored(self) -> dict[tuple[str, str], dict[str, pd.DataFrame]]:
        """The scores of a label and metric by test set, the preferred one first: a report asks for the claims of all
        papers, hundreds of times, and few are scored."""
        cells = self.frame.sort_values("place", kind="stable").groupby(["label", "metric"])
        return {key: dict(iter(own.groupby("test_set", sort=False))) for key, own in cells}  # type: ignore[misc]

    def _own_sets(self, quantity: Quantity) -> list[str]:
        return list(self._scored.get((quantity.label, quantity.metric), ()))

    def _values(self, test_set: str, quantity: Quantity) -> ScoreTable:
        own = self._scored[quantity.label, quantity.metric][test_set]
        own = own.loc[[self._is_meant(quantity, language) for language in own.language]]
        found = next(iter(aggregate(own, ["label"]).values()), EMPTY)
        return found.less(self._values(test_set, quantity.taken_away)) if quantity.taken_away else found

    def _is_meant(self, quantity: Quantity, language: str) -> bool:
        if quantity.dictionary is not None and self.has_dictionary(language) is not quantity.dictionary:
            return False
        if quantity.languages and language not in quantity.languages:
            return False
        if quantity.language == ZERO_SHOT:
            return language not in (_ENGLISH, ALL_LANGUAGES)
        return language != ALL_LANGUAGES if not quantity.language else language == quantity.language


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes:
        name, claim: as `read_claims` has them.
        verdict: HOLDS, DOES_NOT or UNDECIDED.
        why: of UNDECIDED, what is missing, or that there is no difference of more than 1 point; empty otherwise.
        ours: the average of each arm, of each gain of a coverage claim; none of a correlation.
        estimates: of what must lie on the claim's side of zero: each arm less the next, the difference of two gains,
            or the correlation.
        intervals: 95 % of each estimate.
        languages, seeds: that all arms have.
        arms: the labels here of the claim's arms.
    """

    name: str
    claim: Claim
    verdict: str
    why: str = ""
    ours: Sequence[Average] = ()
    estimates: Sequence[float] = ()
    intervals: Sequence[Interval] = ()
    languages: int = 0
    seeds: int = 0
    arms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Points:
    """What is correlated: a block an arm of each measure, all with the same languages and seeds."""

    x: Sequence[ScoreTable]
    y: Sequence[ScoreTable]

    @property
    def correlation(self) -> float:
        """Spearman's over arms and languages, of the means of seeds."""
        return float(spearman(*(np.concatenate([arm.of_languages for arm in arms]) for arms in (self.x, self.y))))

    @property
    def over_arms(self) -> float:
        """Spearman's over arms alone, of the means of languages and seeds."""
        return float(spearman(*([arm.average.mean for arm in arms] for arms in (self.x, self.y))))


def measured(runs: Sequence[Run], scores: pd.DataFrame) -> Measured:
    """The headline scores of labelled runs.

    Args:
        runs: with labels.
        scores: as `compare.score_frame` makes it.
    """
    coverage = known_groupings(runs, {}).get("dictionary")

    def has_dictionary(language: str) -> bool | None:
        return {WITH: True, WITHOUT: False}.get(coverage(language)[1]) if coverage else None

    if not len(scores):
        return Measured(pd.DataFrame(columns=COLUMNS), has_dictionary)
    frame = seed_values(without_layers(scores))
    parts = zip(frame.split, frame.layer, frame.pooling, strict=True)
    named = frame.assign(language=frame.language.map(_name), test_set=[", ".join(filter(None, one)) for one in parts])
    # Both directions of a pair are one language, and count as their mean.
    named = (
        named.groupby(["label", "metric", "test_set", "language", "seed"], sort=False).agg(_OF_DIRECTIONS).reset_index()
    )
    places = {label: place for place, label in enumerate(columns_of(runs))}
    ordered = named.sort_values("label", key=lambda column: column.map(places), kind="stable")
    return Measured(ordered.filter(COLUMNS), has_dictionary, related_languages(runs))


def with_stand_ins(labels: Collection[str]) -> dict[str, str]:
    """The arms of the papers that these labels have, by the label that each has here."""
    return {arm: own for arm, own in STAND_INS.items() if own in labels} | {label: label for label in labels}


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
    known = with_stand_ins(scores.labels)
    arms = tuple(known.get(arm, arm) for arm in claim.arms)
    return replace(_judge(name, claim.model_copy(update={"arms": arms}), scores), claim=claim, arms=arms)


def _judge(name: str, claim: Claim, scores: Measured) -> Verdict:
    if missing := [arm for arm in claim.arms if arm not in scores.labels]:
        return Verdict(name, claim, UNDECIDED, f"no {', '.join(missing)}")
    if isinstance(claim, Correlation):
        return _judge_correlation(name, claim, scores)
    if isinstance(claim, Near):
        return _judge_near(name, claim, scores)
    return _judge_coverage(name, claim, scores) if isinstance(claim, Coverage) else _judge_order(name, claim, scores)


def correlated(claim: Correlation, scores: Measured) -> Points:
    """The values of both measures that all arms have in common languages and seeds."""
    blocks = [
        scores.values_of([measure.model_copy(update={"label": arm}) for arm in claim.arms])
        for measure in (claim.x, claim.y)
    ]
    every = [block for row in blocks for block in row]
    languages = [name for name in every[0].languages if all(name in block.languages for block in every)]
    seeds = [name for name in every[0].seeds if all(name in block.seeds for block in every)]
    return Points(*([block.within(languages, seeds) for block in row] for row in blocks))


def _judge_order(name: str, claim: OrderClaim, scores: Measured) -> Verdict:
    arms = scores.values_of(claim.quantities)
    languages = set.intersection(*(set(arm.languages) for arm in arms))
    if not languages:
        why = scores.why_apart(claim.quantities) or f"no {claim.measure.metric} of all arms in one language"
        return Verdict(name, claim, UNDECIDED, why)
    arms = [arm.within(languages) for arm in arms]
    steps = [step for both in pairwise(arms) if (step := difference(*both, len(arms) - 1, scores.group))]
    least = claim.by / 100
    known = {
        "ours": [arm.average for arm in arms],
        "estimates": [step.estimate.value for step in steps],
        "intervals": [step.interval for step in steps if step.interval],
        "languages": len(languages),
        "seeds": min(step.fewest_seeds for step in steps),
    }
    ends = [step.interval and (step.interval[0] - least, step.interval[1] - least) for step in steps]
    return _decide(name, claim, ends, [step.undecided(least) for step in steps], known)


def _judge_near(name: str, claim: Near, scores: Measured) -> Verdict:
    arms = scores.values_of(claim.quantities)
    zeros = [replace(arm, values=np.zeros_like(arm.values)) for arm in arms]
    gaps = [gap for both in zip(arms, zeros, strict=True) if (gap := difference(*both, len(arms), scores.group))]
    if len(gaps) < len(arms):
        why = scores.why_apart(claim.quantities) or f"no {claim.measure.metric} of all arms"
        return Verdict(name, claim, UNDECIDED, why)
    limit, seeds, languages = claim.within / 100, min(gap.seeds for gap in gaps), min(gap.languages for gap in gaps)
    intervals = [gap.interval for gap in gaps if gap.interval]
    known: dict[str, Any] = {"intervals": intervals, "languages": languages, "seeds": seeds}
    known["estimates"] = [gap.estimate.value for gap in gaps]
    if seeds < 2 or len(intervals) < len(gaps):
        return Verdict(name, claim, UNDECIDED, f"{TOO_FEW_SEEDS} (one)" if seeds < 2 else TOO_FEW, **known)
    if any(gap.groups < min(FEWEST, gap.languages) for gap in gaps):
        return Verdict(name, claim, UNDECIDED, TOO_FEW_GROUPS, **known)
    if all(-limit < low and high < limit for low, high in intervals):
        return Verdict(name, claim, HOLDS, **known)
    if any(low > limit or high < -limit for low, high in intervals):
        return Verdict(name, claim, DOES_NOT, **known)
    by_seeds = any(gap.by_seeds for gap in gaps) or languages == 1
    return Verdict(name, claim, UNDECIDED, TOO_FEW_SEEDS if by_seeds else TOO_FEW_LANGUAGES, **known)


def _judge_coverage(name: str, claim: Coverage, scores: Measured) -> Verdict:
    gains = having, lacking = scores.values_of(claim.quantities)
    # Both groups have the same seeds, and languages of their own: the roles of the two are exchanged.
    gap = difference(having.transposed, lacking.transposed) if len(having) and len(lacking) else None
    if gap is None:
        without = "with" if not len(having) else "without"
        missing = f"no language {without} a dictionary has {claim.measure.metric}"
        return Verdict(name, claim, UNDECIDED, scores.why_apart(claim.quantities) or missing)
    known = {
        "ours": [one.average for one in gains],
        "estimates": [gap.estimate.value],
        "intervals": [gap.interval] if gap.interval else [],
        "languages": len(having) + len(lacking),
        "seeds": gap.languages,
    }
    why = reason(gap.interval, gap.fewest_seeds, gap.languages, not gap.by_seeds)
    return _decide(name, claim, [gap.interval], [why], known)


def _judge_correlation(name: str, claim: Correlation, scores: Measured) -> Verdict:
    points = correlated(claim, scores)
    arms, (languages, seeds) = len(points.x), points.x[0].values.shape
    if not languages or not seeds:
        wanted = [[measure.model_copy(update={"label": arm}) for arm in claim.arms] for measure in (claim.x, claim.y)]
        why = next(
            filter(None, map(scores.why_apart, wanted)), f"no {claim.x.metric} with {claim.y.metric} of all arms"
        )
        return Verdict(name, claim, UNDECIDED, why)
    known: dict[str, Any] = {"languages": languages, "seeds": seeds}
    if arms < FEWEST_ARMS or np.isnan(points.over_arms):
        few = f"described, not judged: {arms} arms, fewer than {FEWEST_ARMS}"
        why = few if arms < FEWEST_ARMS else "all arms are equal"
        return Verdict(name, claim, UNDECIDED, why, estimates=[points.correlation], **known)
    low, high = correlation_interval(np.array(points.over_arms), arms)
    ends = float(low), float(high)
    known |= {"estimates": [points.over_arms], "intervals": [ends]}
    signed = ends if claim.sign == "positive" else (-ends[1], -ends[0])
    return _decide(name, claim, [signed], ["" if signed[0] > 0 or signed[1] < 0 else "too few arms"], known)


def _decide(
    name: str, claim: Claim, found: Sequence[Interval | None], reasons: Sequence[str], known: Mapping[str, Any]
) -> Verdict:
    """The verdict of intervals, all of which are to be above zero; reasons say why one decides nothing."""
    if known["seeds"] < 2:
        return Verdict(name, claim, UNDECIDED, f"{TOO_FEW_SEEDS} (one)", **known)
    if any(ends and ends[1] < 0 and not why for ends, why in zip(found, reasons, strict=True)):
        return Verdict(name, claim, DOES_NOT, **known)
    why = next(filter(None, reasons), "")
    return Verdict(name, claim, UNDECIDED if why else HOLDS, why, **known)


def _parts(quantities: Sequence[Quantity]) -> list[Quantity]:
    return [part for quantity in quantities for part in (quantity.added, quantity.taken_away) if part]


def _name(language: str) -> str:
    return language if language in (_ENGLISH, ALL_LANGUAGES) else "-".join(other_languages(language))
