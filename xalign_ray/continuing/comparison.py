"""Comparison of a continued encoder with its base on the same sentences: a row for each measure and language.

`results.continued.MEASURES` has the measures; `sentence_sets` computes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from xalign_ray.continuing.sentence_scores import SentenceScores, why_no_losses
from xalign_ray.continuing.sentence_sets import Change, SentenceSet
from xalign_ray.results.continued import MEASURES
from xalign_ray.results.difference import holm_intervals
from xalign_ray.work.status_line import PartsDone

NOTHING_KEPT = (
    "Nothing says what was forgotten. Name what must not get worse with --keep: pairs, text, scored pairs, or a "
    "retrieval set."
)
Verdict = Literal["gained", "kept", "lost", "unclear"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measure of one set.

    Attributes:
        measure: a key of `MEASURES`.
        language: a code; of pairs without an English side both codes, such as "de-fr".
        trained: whether the run was trained on it.
        base, yours: the value of each encoder.
        difference: yours - base.
        low, high: its 95 % interval over sentences, corrected for all rows of the measure; null of fewer than two.
        verdict: see `verdict_of`; null of drift.
        detectable: the smallest difference that these sentences could have shown: half of the interval's width.
        count: pairs, sentences or queries.
        split: the file or folder that they are from.
    """

    measure: str
    language: str
    trained: bool
    base: float
    yours: float
    difference: float
    low: float | None
    high: float | None
    verdict: Verdict | None
    detectable: float | None
    count: int
    split: str


@dataclass(frozen=True)
class BaseComparison:
    """All rows, the change that each is of, and notes on measures that are missing."""

    rows: Sequence[Row]
    changes: Sequence[Change]
    notes: Sequence[str]


def compare_with_base(
    base: str | SentenceScores,
    trained: str,
    tests: Sequence[SentenceSet],
    kept: Sequence[SentenceSet] = (),
    trained_languages: Collection[str] | None = None,
    device: str = "auto",
    margin: float = 1.0,
) -> BaseComparison:
    """Scores both encoders on the same sentences.

    Args:
        base: folder or hub id of the encoder that was continued; opened already, it keeps its vectors.
        trained: folder or hub id of the continued encoder.
        tests: held out of training.
        kept: what must not get worse.
        trained_languages: sentences in these alone count as trained; if None, `tests` do.
        device: a torch device; "auto" is the GPU where there is one.
        margin: the loss, in points, below which something is kept; of a masked-LM loss in hundredths of a nat.

    Raises:
        DataError: an encoder cannot be opened, or yields values that are not finite.
    """
    old = SentenceScores(base, None, device) if isinstance(base, str) else base
    new = SentenceScores(trained, old.rule, device)
    changes, sets = list[Change](), [*tests, *kept]
    with PartsDone("comparing", dict.fromkeys(range(len(sets)), 0), part="set") as shown:
        for number, measured in enumerate(sets):
            changes += measured.changes(old, new)
            shown.add(number)
    of_tests = {id(measured) for measured in tests}

    def is_trained(measured: SentenceSet) -> bool:
        if trained_languages is None:
            return id(measured) in of_tests
        return {*measured.languages} <= {*trained_languages}

    notes = [f"Sentence vectors: {old.rule.words}.", *([] if kept else [NOTHING_KEPT])]
    if any(change.measure == "drift" for change in changes) and (why := why_no_losses(old, new)):
        notes.append(f"There is no masked-LM loss of what was kept: {why}.")
    return as_rows(changes, [is_trained(change.of) for change in changes], margin, notes)


def as_rows(
    changes: Sequence[Change], trained: Iterable[bool], margin: float, notes: Sequence[str] = ()
) -> BaseComparison:
    """A row of each change, with its interval, corrected for all rows of the measure, and its verdict."""
    rows, of_rows, places = list[Row](), list[Change](), [*zip(changes, trained, strict=True)]
    for measure, kind in MEASURES.items():
        of_measure = [(change, is_trained) for change, is_trained in places if change.measure == measure]
        estimates = [change.estimate for change, _ in of_measure if change.estimate]
        ends = holm_intervals(estimates) if kind.better else [estimate.interval() for estimate in estimates]
        intervals = iter(ends)
        for change, is_trained in of_measure:
            low, high = next(intervals) if change.estimate else (None, None)
            of_rows.append(change)
            rows.append(
                Row(
                    measure=measure,
                    language=change.of.language,
                    trained=is_trained,
                    base=change.base,
                    yours=change.yours,
                    difference=change.yours - change.base,
                    low=low,
                    high=high,
                    verdict=verdict_of(measure, low, high, margin),
                    detectable=None if low is None or high is None else (high - low) / 2,
                    count=len(change.of),
                    split=change.of.split,
                )
            )
    return BaseComparison(rows, of_rows, notes)


def verdict_of(measure: str, low: float | None, high: float | None, margin: float) -> Verdict | None:
    """The verdict of an interval of a difference: "kept" excludes a loss of `margin` points; None of drift."""
    better = MEASURES[measure].better
    if not better:
        return None
    if low is None or high is None:
        return "unclear"
    worst, best = sorted((better * low, better * high))
    return "gained" if worst > 0 else "lost" if best < 0 else "kept" if worst > -margin / 100 else "unclear"
