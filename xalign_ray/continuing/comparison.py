"""Comparison of a continued encoder with its base on the same sentences: a row for each measure and language.

`retrieval` is the share of pairs whose sentences find each other by cosine, the mean of both directions;
`retrieval_csls` is the same by CSLS; `mlm_loss` is in nats a masked token; `drift` is 1 - the mean cosine of a
sentence's vector with the base's vector of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.language_codes import ENGLISH, name_of_pair
from xalign_ray.continuing.sentence_scores import Numbers, SentenceScores, Text
from xalign_ray.models.nearest import find_translations, thin, unit_rows
from xalign_ray.results.difference import MeanEstimate, accuracy_gain, holm_intervals, ratio
from xalign_ray.tasks.retrieval import MAX_PAIRS, TranslatedSentences
from xalign_ray.work.status_line import say

NOTHING_KEPT = (
    "Nothing says what was forgotten: no pairs or text of languages that were not trained were kept out. "
    "Name some with --keep."
)
Verdict = Literal["gained", "kept", "lost", "unclear"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measure in one language.

    Attributes:
        measure: retrieval, retrieval_csls, drift or mlm_loss.
        language: a code; of pairs without an English side both codes, such as "de-fr".
        trained: whether the run was trained on it.
        base, yours: the value of each encoder.
        difference: yours - base.
        low, high: its 95 % interval over sentences, corrected for all rows of the measure; null of fewer than two.
        verdict: see `verdict_of`; null of drift.
        detectable: the smallest difference that these sentences could have shown: half of the interval's width.
        count: pairs or sentences.
        split: the file or folder that they are from.
    """

    measure: str
    language: str
    trained: bool
    base: float
    yours: float
    difference: float
    low: float | None = None
    high: float | None = None
    verdict: Verdict | None = None
    detectable: float | None = None
    count: int
    split: str


@dataclass(frozen=True)
class PairScores:
    """One measure of retrieval for both encoders: per pair of sentences 0, 0.5 or 1, `[N]` each."""

    measure: str
    pairs: TranslatedSentences
    base: NDArray[np.float64]
    yours: NDArray[np.float64]


@dataclass(frozen=True)
class BaseComparison:
    """All rows, the estimate of each one's difference, notes on measures that are missing, and each pair's scores."""

    rows: Sequence[Row]
    estimates: Sequence[MeanEstimate | None]
    notes: Sequence[str]
    of_pairs: Sequence[PairScores] = ()


@dataclass(frozen=True)
class Kept:
    """Sentences on which drift and masked-LM loss of a language are measured."""

    language: str
    texts: Sequence[Text]
    split: str

    @classmethod
    def of_pairs(cls, pairs: TranslatedSentences) -> Kept:
        """The sentences that are not English; all if none is."""
        others = [code for code in pairs.languages if code != ENGLISH] or pairs.languages
        texts = [text for side in _sides(pairs) for text in side if text[1] in others]
        return cls(name_of_pair(*pairs.languages), texts, pairs.split)

    @classmethod
    def of_text(cls, language: str, sentences: Sequence[str], split: str) -> Kept:
        """At most MAX_PAIRS, evenly spaced."""
        chosen = [(sentences[index], language) for index in thin(len(sentences), MAX_PAIRS)]
        return cls(language, chosen, split)


def compare_with_base(
    base: str | SentenceScores,
    trained: str,
    tests: Sequence[TranslatedSentences],
    kept: Sequence[TranslatedSentences] = (),
    texts: Sequence[Kept] = (),
    trained_languages: Collection[str] | None = None,
    device: str = "auto",
    margin: float = 1.0,
) -> BaseComparison:
    """Scores both encoders on the same sentences.

    Args:
        base: folder or hub id of the encoder that was continued; opened already, it keeps its vectors.
        trained: folder or hub id of the continued encoder.
        tests: pairs that were held out of training.
        kept: pairs of languages that must not get worse.
        texts: sentences of languages that must not get worse.
        trained_languages: sentences in these alone count as trained; if None, `tests` do.
        device: a torch device; "auto" is the GPU where there is one.
        margin: the loss, in points, below which something is kept; of a masked-LM loss in hundredths of a nat.

    Raises:
        DataError: an encoder cannot be opened, or yields values that are not finite.
    """
    from xalign_ray.models.inference import pick_device

    old = SentenceScores(base, None, device) if isinstance(base, str) else base
    new = SentenceScores(trained, old.rule, device)
    tests, kept = [pairs.thinned() for pairs in tests], [pairs.thinned() for pairs in kept]
    forgettable = [*map(Kept.of_pairs, kept), *texts]

    # Each distinct text is encoded once: English sentences are in the pairs of many languages.
    groups = [side for pairs in [*tests, *kept] for side in _sides(pairs)] + [
        sentences.texts for sentences in forgettable
    ]
    distinct = [*dict.fromkeys(text for group in groups for text in group)]
    say(f"Comparing {len(distinct):,} sentences: vectors of both encoders.")
    row_of = {text: row for row, text in enumerate(distinct)}
    vectors = old.vectors(distinct), new.vectors(distinct)

    def take(group: Sequence[Text]) -> tuple[Numbers, Numbers]:
        rows = [row_of[text] for text in group]
        return vectors[0][rows], vectors[1][rows]

    def row(measure: str, language: str, is_trained: bool, values: Sequence[float], count: int, split: str) -> Row:
        old_value, new_value = map(float, values)
        return Row(
            measure=measure,
            language=language,
            trained=is_trained,
            base=old_value,
            yours=new_value,
            difference=new_value - old_value,
            count=count,
            split=split,
        )

    rows, of_pairs = list[tuple[Row, MeanEstimate | None]](), list[PairScores]()
    for number, pairs in enumerate([*tests, *kept]):
        language = name_of_pair(*pairs.languages)
        is_trained = number < len(tests) if trained_languages is None else {*pairs.languages} <= {*trained_languages}
        say(f"Comparing {len(pairs):,} pairs of {pairs.split} ({language}).")
        sides = [take(side) for side in _sides(pairs)]
        for measure in ("retrieval", "retrieval_csls"):
            old_found, new_found = (
                find_translations(
                    first, second, pairs.numbers, csls=measure == "retrieval_csls", device=str(pick_device(device))
                )
                for first, second in zip(*sides, strict=True)
            )
            of_pairs.append(PairScores(measure, pairs, old_found, new_found))
            means = old_found.mean(), new_found.mean()
            estimate = accuracy_gain(old_found, new_found)
            rows.append((row(measure, language, is_trained, means, len(pairs), pairs.split), estimate))
    why_no_loss = ""
    if forgettable:
        why_no_loss = old.why_no_losses or new.why_no_losses
        if not why_no_loss and old.tokenizer_hash != new.tokenizer_hash:
            why_no_loss = "the vocabularies differ, so that the two would predict other pieces"
    for measure in ("drift",) if why_no_loss else ("drift", "mlm_loss"):
        for sentences in forgettable:
            if measure == "drift":
                old_units, new_units = map(unit_rows, take(sentences.texts))
                drift = 1 - (old_units.astype(np.float64) * new_units).sum(axis=1)
                means, estimate = (0.0, drift.mean()), ratio(drift)
            else:
                (old_losses, labels), (new_losses, _) = old.losses(sentences.texts), new.losses(sentences.texts)
                means = old_losses.sum() / labels.sum(), new_losses.sum() / labels.sum()
                estimate = ratio(new_losses - old_losses, labels)
            is_trained = {language for _, language in sentences.texts} <= {*(trained_languages or ())}
            count = len(sentences.texts)
            rows.append((row(measure, sentences.language, is_trained, means, count, sentences.split), estimate))
    missing = f"There is no masked-LM loss of what was kept: {why_no_loss}." if why_no_loss else ""
    notes = [f"Sentence vectors: {old.rule.words}.", missing if forgettable else NOTHING_KEPT]
    judged = [*_judged(rows, margin)]
    return BaseComparison(
        [row for row, _ in judged], [estimate for _, estimate in judged], [*filter(None, notes)], of_pairs
    )


def _sides(pairs: TranslatedSentences) -> list[Sequence[Text]]:
    return [[(text, code) for text in texts] for code, texts in zip(pairs.languages, pairs.texts, strict=True)]


def _judged(
    rows: Sequence[tuple[Row, MeanEstimate | None]], margin: float
) -> Iterator[tuple[Row, MeanEstimate | None]]:
    """Gives each row its interval, corrected for all rows of the measure, and its verdict; drift has none."""
    for measure in dict.fromkeys(row.measure for row, _ in rows):
        of_measure = [(row, estimate) for row, estimate in rows if row.measure == measure]
        estimates = [estimate for _, estimate in of_measure if estimate]
        intervals = iter([drift.interval() for drift in estimates] if measure == "drift" else holm_intervals(estimates))
        for row, estimate in of_measure:
            low, high = next(intervals) if estimate else (None, None)
            detectable = None if low is None or high is None else (high - low) / 2
            verdict = verdict_of(measure, low, high, margin)
            yield replace(row, low=low, high=high, verdict=verdict, detectable=detectable), estimate


def verdict_of(measure: str, low: float | None, high: float | None, margin: float) -> Verdict | None:
    """The verdict of an interval of a difference: "kept" excludes a loss of `margin` points; None of drift."""
    if measure == "drift":
        return None
    if low is None or high is None:
        return "unclear"
    worst, best = (-high, -low) if measure == "mlm_loss" else (low, high)
    return "gained" if worst > 0 else "lost" if best < 0 else "kept" if worst > -margin / 100 else "unclear"
