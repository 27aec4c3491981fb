"""Retrieval of translations among sentence vectors: who finds whom, accuracies by layer, and the headline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xalign_ray.models.nearest import Indices, Vectors, nearest_cosine, nearest_csls

LAST_LAYERS = 4
MEAN_OF_LAST = f"mean of the last {LAST_LAYERS} layers, mean pooling; the encoder has no Sentence Transformers files"
Right = NDArray[np.bool_]


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
    def texts(self) -> tuple[Sequence[str], Sequence[str]]:
        """The first and the second sentences."""
        return self.first, self.second


def are_pairs(queries: Indices, candidates: Indices, found: Indices) -> Right:
    """Whether each query and the candidate that it found are a pair of the test, by their texts: bool `[N]`.

    So a text that stands twice is never wrong because its copy was found.

    Args:
        queries: a number for each distinct text among the queries, `[N]`.
        candidates: the same of the candidates, `[N]`; candidate i translates query i.
        found: index of the candidate that each query found, `[N]`.
    """
    size = int(candidates.max(initial=0)) + 1
    return np.isin(queries * size + candidates[found], queries * size + candidates)


def find_translations(
    first: Vectors, second: Vectors, numbers: tuple[Indices, Indices], *, csls: bool = False, device: str = "cpu"
) -> NDArray[np.float64]:
    """Whether each pair's sentences find each other: the mean of both directions, 0, 0.5 or 1, `[N]`.

    Args:
        first, second: vectors of the sentences, `[N, D]`.
        numbers: of `TranslatedSentences`.
    """
    numbers_of_first, numbers_of_second = numbers

    def right(asked: Vectors, others: Vectors, queries: Indices, candidates: Indices) -> Right:
        found = nearest_csls(asked, others, asked, device=device) if csls else nearest_cosine(asked, others, device)
        return are_pairs(queries, candidates, found)

    forward = right(first, second, numbers_of_first, numbers_of_second)
    return (forward + right(second, first, numbers_of_second, numbers_of_first).astype(float)) / 2


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
