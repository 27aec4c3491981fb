"""Counts an encoder's parameters, and the floating-point operations that it needs, without torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.choices import ObjectiveChoice
from xalign_ray.config.schema import ModelConfig
from xalign_ray.models.family import Family, Values


@dataclass(frozen=True)
class Sizes:
    """Parameters by part, each counted once (a decoder that is tied to the word embeddings among these)."""

    word_embeddings: int
    other_embeddings: int
    layers: int
    head: int

    @property
    def total(self) -> int:
        """All trained parameters."""
        return self.word_embeddings + self.other_embeddings + self.layers + self.head


def count_in(family: Family, values: Values, model: ModelConfig, languages: int, with_head: bool = True) -> Sizes:
    """The parameters that `build_encoder` would make of a family and its config.json, exactly.

    Args:
        model: its language embeddings and head are read.
        languages: number of languages of the run.
        with_head: as in `build_encoder`.
    """
    d, V = values["hidden_size"], values["vocab_size"]
    counts = family.count(values, read_by_head=2 * d if model.conditioned_head else d)
    head = counts.transform + counts.output_bias + (0 if values["tie_word_embeddings"] else V * d)
    return Sizes(
        word_embeddings=V * d,
        other_embeddings=counts.other_embeddings + (languages * d if model.language_embeddings else 0),
        layers=counts.layers,
        head=head if with_head else 0,
    )


# Counts the floating-point operations that an encoder needs, however they are done, from its config.json; no torch.

TRAINED = 3  # forward passes: a backward pass takes twice what its forward pass takes


class Operations:
    """Of an encoder: 2 a weight and token, attention by the lengths of examples, the head by labels.

    Weights of the layers count, embeddings do not. Not counted: padding; recomputation, but for the first of the two
    passes of a loss over the whole step; the words that dictionary_alignment encodes one by one, word_exchange's use
    of the head, and denoising_alignment's matrices. A loss on an earlier layer counts as one on the last.
    Source: Kaplan et al. 2020, section 2.1; Chowdhery et al. 2022, appendix B.
    """

    def __init__(self, family: Family, values: Values, conditioned_head: bool) -> None:
        d = values["hidden_size"]
        counts = family.count(values, read_by_head=2 * d if conditioned_head else d)
        self._a_token = 2 * counts.layers
        self._a_label = 2 * (counts.transform + counts.output_bias + d * values["vocab_size"])
        self._a_pair = 2 * d * family.products(values)  # of tokens that see each other, in a layer
        self._windows = Counter(family.windows(values))

    def forward(self, lengths: NDArray[np.int64]) -> float:
        """What one pass over examples of such lengths takes."""
        pairs = sum(layers * seen_pairs(lengths, window).sum() for window, layers in self._windows.items())
        return float(self._a_token * lengths.sum() + self._a_pair * pairs)

    def of_labels(self, labels: float) -> float:
        """Operations of predicting labels, with the backward pass."""
        return TRAINED * self._a_label * labels


def encoded_by(objectives: Iterable[ObjectiveChoice], micro_steps: int) -> dict[str, int]:
    """Forward passes of a micro-step by their input: the losses' `encoded`, and the first of two passes.

    Of what several read, the most that one of them takes.
    """
    passes_by_prefix: dict[str, int] = {}
    for loss in objectives:
        for name, passes in loss.encoded.items():
            passes_by_prefix[name] = max(passes_by_prefix.get(name, 0), passes + (loss.over_step and micro_steps > 1))
    return passes_by_prefix


def seen_pairs(lengths: NDArray[np.int64], window: int | None) -> NDArray[np.int64]:
    """How many pairs of tokens of an example see each other: all, or those at most `window` tokens apart."""
    if window is None:
        return lengths**2
    near = np.minimum(window, lengths - 1)
    return lengths * (2 * near + 1) - near * (near + 1)
