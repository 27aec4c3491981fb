"""Sets of sentences on which two encoders are compared: translations, text, scored pairs, queries with passages.

A set yields a `Change` of each of its measures (`results.continued.MEASURES`); no other module depends on its kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.language_codes import ENGLISH, name_of_pair
from xalign_ray.continuing.sentence_scores import SentenceScores, Text, why_no_losses
from xalign_ray.models.nearest import find_translations, nearest_both_ways, thin, unit_rows
from xalign_ray.results.difference import ADDED, MeanEstimate, accuracy_gain, ratio
from xalign_ray.tasks.retrieval import MAX_PAIRS, TranslatedSentences

Array = NDArray[np.float64]
RANKS = 10  # of nDCG@10


@dataclass(frozen=True)
class Change:
    """One measure of a set, of both encoders.

    Attributes:
        base, yours: the value of each.
        estimate: of yours - base, over other sentences like these; None of fewer than two.
        parts: what each item adds to the error of the estimate, by what other sets may have too. The squares add up to
            its variance; of sets that share items the parts are added before they are squared.
        moves: of a mean, what each item adds to it.
        items: of translations, for each encoder and pair how many of its sentences find each other: 0, 0.5 or 1.
    """

    measure: str
    of: SentenceSet
    base: float
    yours: float
    estimate: MeanEstimate | None
    parts: Mapping[Hashable, float] = field(default_factory=dict)
    moves: Mapping[Hashable, float] = field(default_factory=dict)
    items: tuple[Array, Array] | None = None


class SentenceSet(ABC):
    """What both encoders are measured on.

    Attributes:
        language: a code; of pairs without an English side both codes, such as "de-fr".
        split: the file or folder.
        unit: name of its items in messages.
    """

    language: str
    split: str
    unit: ClassVar[str]

    @property
    def languages(self) -> Sequence[str]:
        """All codes."""
        return [self.language]

    @abstractmethod
    def __len__(self) -> int:
        """The number of items that are drawn: pairs, sentences or queries."""

    @abstractmethod
    def pick(self, places: Sequence[int]) -> Self:
        """The items at these places alone."""

    def half(self, number: int) -> Self:
        """Every second item, from `number` (0 or 1) on; a single one is in both halves."""
        return self.pick(range(number, len(self), 2) or [0])

    def thinned(self) -> Self:
        """At most MAX_PAIRS items, evenly spaced."""
        return self.pick(thin(len(self), MAX_PAIRS))

    @abstractmethod
    def changes(self, old: SentenceScores, new: SentenceScores) -> Iterator[Change]:
        """Each of its measures, in two encoders."""

    def _shares(self, measure: str, both: Sequence[Array], items: Sequence[Hashable]) -> Change:
        """The change of a mean of numbers in [0, 1], one of each item in both encoders."""
        before, after = both
        gain = accuracy_gain(before, after)
        parts, moves = defaultdict[Hashable, float](float), defaultdict[Hashable, float](float)
        for item, gap in zip(items, (after - before).tolist(), strict=True):
            parts[item] += (gap - gain.value) / (len(items) + ADDED)
            moves[item] += gap / (len(items) + ADDED)
        return Change(measure, self, float(before.mean()), float(after.mean()), gain, parts, moves, (before, after))


@dataclass(frozen=True)
class PairSet(SentenceSet):
    """Pairs by retrieval; where they must be kept, drift and masked-LM loss of their sentences too.

    Queries with passages (`is_search`) stand behind the encoder's prompts of these, as in training.
    """

    unit = "pairs"
    language: str
    pairs: TranslatedSentences
    split: str
    is_kept: bool = True
    is_search: bool = False

    @classmethod
    def of(cls, pairs: TranslatedSentences, is_kept: bool = True, is_search: bool = False) -> PairSet:
        """The set of these pairs; in one language they are queries with passages."""
        is_search = is_search or len({*pairs.languages}) == 1
        return cls(name_of_pair(*pairs.languages), pairs, pairs.split, is_kept, is_search)

    @property
    def languages(self) -> Sequence[str]:
        return self.pairs.languages

    def __len__(self) -> int:
        return len(self.pairs)

    def pick(self, places: Sequence[int]) -> PairSet:
        first, second = ([texts[index] for index in places] for texts in self.pairs.texts)
        return replace(self, pairs=replace(self.pairs, first=first, second=second))

    def changes(self, old: SentenceScores, new: SentenceScores) -> Iterator[Change]:
        pairs, sides = self.pairs, self._sides()
        prompts = old.search_prompts if self.is_search else (None, None)
        english = pairs.texts[ENGLISH in pairs.languages and pairs.languages.index(ENGLISH)]
        for measure in ("retrieval", "retrieval_csls"):
            both = [
                find_translations(
                    scores.vectors(sides[0], prompts[0]),
                    scores.vectors(sides[1], prompts[1]),
                    pairs.numbers,
                    csls=measure == "retrieval_csls",
                    device=old.device,
                )
                for scores in (old, new)
            ]
            yield self._shares(measure, both, english)
        if self.is_kept:
            others = [code for code in pairs.languages if code != ENGLISH] or pairs.languages
            texts = [text for side in sides for text in side if text[1] in others]
            yield from KeptText(self.language, texts, self.split).changes(old, new)

    def _sides(self) -> list[list[Text]]:
        return [
            [(text, code) for text in texts] for code, texts in zip(self.pairs.languages, self.pairs.texts, strict=True)
        ]


@dataclass(frozen=True)
class KeptText(SentenceSet):
    """Sentences by drift and masked-LM loss."""

    unit = "lines"
    language: str
    texts: Sequence[Text]
    split: str

    @classmethod
    def of(cls, language: str, sentences: Sequence[str], split: str) -> KeptText:
        """The set of sentences in one language."""
        return cls(language, [(text, language) for text in sentences], split)

    @property
    def languages(self) -> Sequence[str]:
        return [*{language for _, language in self.texts}]

    def __len__(self) -> int:
        return len(self.texts)

    def pick(self, places: Sequence[int]) -> KeptText:
        return replace(self, texts=[self.texts[index] for index in places])

    def changes(self, old: SentenceScores, new: SentenceScores) -> Iterator[Change]:
        old_units, new_units = (unit_rows(scores.vectors(self.texts)) for scores in (old, new))
        drift = 1 - (old_units.astype(np.float64) * new_units).sum(axis=1)
        yield Change("drift", self, 0.0, float(drift.mean()), ratio(drift))
        if not why_no_losses(old, new):
            (old_losses, labels), (new_losses, _) = old.losses(self.texts), new.losses(self.texts)
            before, after = (float(losses.sum() / labels.sum()) for losses in (old_losses, new_losses))
            yield Change("mlm_loss", self, before, after, ratio(new_losses - old_losses, labels))


@dataclass(frozen=True)
class ScoredPairs(SentenceSet):
    """Two sentences and a score of how alike they are (STS), by Spearman's correlation with the cosine.

    Attributes:
        rows: number in the file, both sentences, and the score. Files that translate each other have equal numbers.
    """

    unit = "scored pairs"
    language: str
    rows: Sequence[tuple[int, str, str, float]]
    split: str

    def __len__(self) -> int:
        return len(self.rows)

    def pick(self, places: Sequence[int]) -> ScoredPairs:
        return replace(self, rows=[self.rows[index] for index in places])

    def changes(self, old: SentenceScores, new: SentenceScores) -> Iterator[Change]:
        numbers, *sides, scores = zip(*self.rows, strict=True)
        both = [spearman(self._cosines(encoder, sides), np.array(scores)) for encoder in (old, new)]
        (before, influence), (after, new_influence) = both
        parts = (new_influence - influence) / len(self)
        error = float(np.sqrt((parts**2).sum()))
        estimate = MeanEstimate(after - before, error, len(self) - 1) if len(self) > 1 else None
        yield Change("cosine_spearman", self, before, after, estimate, dict(zip(numbers, parts.tolist(), strict=True)))

    def _cosines(self, encoder: SentenceScores, sides: Sequence[Sequence[str]]) -> Array:
        first, second = (unit_rows(encoder.vectors([(text, self.language) for text in side])) for side in sides)
        return (first.astype(np.float64) * second).sum(axis=1)


def spearman(first: Array, second: Array) -> tuple[float, Array]:
    """Spearman's correlation of two lists, `[N]` each, ties at their middle rank, and the influence of each item on it.

    The influence (Hampel 1974) is the derivative by the item's weight: its variance over N is that of the correlation
    over other items, as a bootstrap finds it by chance. The difference of two encoders' influences is a paired one.
    """
    sides = [(values, 1 - _mean_above(values, np.ones(len(values))) - 0.5) for values in (first, second)]
    (x, r), (y, s) = sides
    spreads = [(ranks**2).mean() for _, ranks in sides]
    if min(spreads) == 0:
        return 0.0, np.zeros(len(first))
    joint, scale = (r * s).mean(), float(np.sqrt(spreads[0] * spreads[1]))
    of_joint = r * s + _mean_above(x, s) + _mean_above(y, r) - 3 * joint
    of_spreads = [
        (ranks**2 + 2 * _mean_above(values, ranks)) / spread - 3
        for (values, ranks), spread in zip(sides, spreads, strict=True)
    ]
    correlation = float(joint / scale)
    return correlation, of_joint / scale - correlation / 2 * (of_spreads[0] + of_spreads[1])


def _mean_above(values: Array, weights: Array) -> Array:
    """Of each value the mean over all items of the weight of those above it, and half that of those equal to it."""
    _, places = np.unique(values, return_inverse=True)
    sums = np.bincount(places, weights)
    return (sums.sum() - np.cumsum(sums) + sums / 2)[places] / len(values)


@dataclass(frozen=True)
class QuerySet(SentenceSet):
    """Queries, passages and judgements, by nDCG@10 as trec_eval computes it.

    Attributes:
        queries, passages: texts by id.
        judged: by query id the gain of each judged passage; one at least is above 0.
    """

    unit = "queries"
    language: str
    queries: Mapping[str, str]
    passages: Mapping[str, str]
    judged: Mapping[str, Mapping[str, float]]
    split: str

    def __len__(self) -> int:
        return len(self.queries)

    def pick(self, places: Sequence[int]) -> QuerySet:
        queries = [*self.queries.items()]
        return replace(self, queries=dict(queries[index] for index in places))

    def changes(self, old: SentenceScores, new: SentenceScores) -> Iterator[Change]:
        both = [self._ndcg(encoder, old.search_prompts) for encoder in (old, new)]
        yield self._shares("ndcg_at_10", both, [*self.queries])

    def _ndcg(self, encoder: SentenceScores, prompts: tuple[str, str]) -> Array:
        queries, passages = (
            unit_rows(encoder.vectors([(text, self.language) for text in texts.values()], prompt))
            for texts, prompt in zip((self.queries, self.passages), prompts, strict=True)
        )
        names = [*self.passages]
        # One more than is counted: a passage of the query's id that was not judged is the query itself.
        nearest, _ = nearest_both_ways(queries, passages, RANKS + 1, encoder.device)
        gains = []
        for query, places in zip(self.queries, nearest.places.tolist(), strict=True):
            judged = self.judged[query]
            reached_names = [names[index] for index in places if names[index] != query or query in judged]
            reached = [judged.get(name, 0.0) for name in reached_names]
            gains.append(_discounted(reached) / _discounted(sorted(judged.values(), reverse=True)))
        return np.array(gains)


def _discounted(gains: Sequence[float]) -> float:
    return sum(max(gain, 0.0) / np.log2(rank + 1) for rank, gain in enumerate(gains[:RANKS], 1))
