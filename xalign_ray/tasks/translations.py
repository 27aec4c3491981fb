"""Sentences that translate each other, the accuracy of finding translations at each layer, and the headline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from xalign_ray.models.nearest import Indices, Vectors, are_pairs, nearest_cosine, nearest_csls, thin

LAST_LAYERS = 4
MAX_PAIRS = 10_000  # of two languages: each sentence is compared with all others
MEAN_OF_LAST = f"mean of the last {LAST_LAYERS} layers, mean pooling; the encoder has no Sentence Transformers files"


@dataclass(frozen=True)
class TranslatedSentences:
    """Sentences in two languages; sentence i of the first translates sentence i of the second.

    Attributes:
        languages: codes of the first and the second sentences.
        first, second: equally many texts.
        split: name of the file or folder that they are from.
    """

    languages: tuple[str, str]
    first: Sequence[str]
    second: Sequence[str]
    split: str

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def numbers(self) -> tuple[Indices, Indices]:
        """A number for each distinct text of the first and of the second sentences: `[N]` each."""
        first, second = (np.unique(np.array(texts, dtype=object), return_inverse=True)[1] for texts in self.texts)
        return first, second

    @property
    def duplicates(self) -> int:
        """Sentences that stand more than once among those of their language."""
        return sum(len(texts) - len(set(texts)) for texts in self.texts)

    def swapped(self) -> TranslatedSentences:
        """The same pairs with the languages in the other order."""
        language, other_language = self.languages
        return TranslatedSentences((other_language, language), self.second, self.first, self.split)

    def joined(self, other: TranslatedSentences) -> TranslatedSentences:
        """These pairs and others of the same two languages, perhaps in the other order."""
        first, second = (other if other.languages == self.languages else other.swapped()).texts
        split = self.split if other.split == self.split else f"{self.split}, {other.split}"
        return TranslatedSentences(self.languages, [*self.first, *first], [*self.second, *second], split)

    def thinned(self) -> TranslatedSentences:
        """At most MAX_PAIRS, evenly spaced."""
        chosen = thin(len(self), MAX_PAIRS)
        first, second = ([texts[index] for index in chosen] for texts in self.texts)
        return TranslatedSentences(self.languages, first, second, self.split)

    @property
    def texts(self) -> tuple[Sequence[str], Sequence[str]]:
        """The first and the second sentences."""
        return self.first, self.second


def layer_accuracies(
    queries: Vectors,
    candidates: Vectors,
    *,
    csls: bool = False,
    device: str = "cpu",
    numbers: tuple[Indices, Indices] | None = None,
) -> list[float]:
    """Share of queries whose nearest candidate by cosine, or by CSLS, is right, for each layer.

    Args:
        queries, candidates: `[layers + 1, N, D]` each.
        numbers: of the texts of the queries and the candidates; then a copy of the right text is right. Only the
            query's own index is right without them.
    """
    own, layers = np.arange(queries.shape[1]), zip(queries, candidates, strict=True)
    nearest = (
        nearest_csls(left, right, left, device=device) if csls else nearest_cosine(left, right, device)
        for left, right in layers
    )
    return [float((are_pairs(*numbers, found) if numbers else found == own).mean()) for found in nearest]


def headline(values: Sequence[float], last: bool = False) -> float:
    """The value that stands for an encoder, of those of its layers: that of the last, or the mean of the last 4.

    `values[0]` is the embedding layer's and never counts.
    """
    chosen = values[-1:] if last else values[1:][-LAST_LAYERS:]
    return sum(chosen) / len(chosen)


def layer_cosines(queries: Vectors, candidates: Vectors, shift: int) -> list[float]:
    """Mean cosine of each query and the candidate `shift` places behind its own, for each layer; 0 are translations.

    Both are `[layers + 1, N, D]`.
    """
    left, right = (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True) for vectors in (queries, candidates))
    return (left * np.roll(right, -shift, axis=1)).sum(axis=-1).mean(axis=1).tolist()
