"""Counts an encoder's parameters, on a model without memory, and the floating-point operations that it needs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.choices import ObjectiveChoice
from xalign_ray.config.schema import ModelConfig
from xalign_ray.models.family import Family, Values


@dataclass(frozen=True)
class Sizes:
    """Parameters by part, each counted once (a decoder that is tied to the word embeddings among these).

    Attributes:
        transform: of the head's layers before its decoder, before a language vector extends them.
        adapters: beside the layers, which alone are trained where there are some.
    """

    word_embeddings: int
    other_embeddings: int
    layers: int
    head: int
    transform: int
    adapters: int = 0

    @property
    def total(self) -> int:
        """All parameters but adapters."""
        return self.word_embeddings + self.other_embeddings + self.layers + self.head


def on_meta(family: Family, values: Values) -> Any:
    """A model of a family, with a head where it can be trained, whose weights have a shape and no memory."""
    return _on_meta(family, json.dumps(dict(values), sort_keys=True, default=str))


@lru_cache(maxsize=16)
def _on_meta(family: Family, values: str) -> Any:
    import torch  # here, because it costs whoever only checks a recipe seconds

    classes = family.classes()
    config = classes.config.from_dict(json.loads(values))
    with torch.device("meta"):
        return classes.masked_lm(config) if classes.masked_lm else classes.bare(config)


def count_in(family: Family, values: Values, model: ModelConfig, languages: int, with_head: bool = True) -> Sizes:
    """The parameters that `build_encoder` would make of a family and its config.json, exactly.

    Args:
        model: its language embeddings and head are read.
        languages: number of languages of the run.
        with_head: as in `build_encoder`.
    """
    from xalign_ray.models.adapters import count_adapters  # torch

    hf, d = on_meta(family, values), values["hidden_size"]
    words, decoder = hf.get_input_embeddings().weight, hf.get_output_embeddings()
    inside = {name: weight for name, weight in hf.base_model.named_parameters() if weight is not words}
    embeddings = sum(weight.numel() for name, weight in inside.items() if "embed" in name)
    transform = bias = untied = 0
    if decoder is not None and hf.base_model is not hf:
        counted = {id(weight) for weight in (*hf.base_model.parameters(), decoder.weight, decoder.bias)}
        bias = 0 if decoder.bias is None else decoder.bias.numel()
        untied = 0 if values["tie_word_embeddings"] else decoder.weight.numel()
        transform = sum(
            weight.numel()
            for name, weight in hf.named_parameters()
            if id(weight) not in counted and name != family.output_bias
        )
    head = transform + bias + untied + (d * d if model.conditioned_head else 0)
    return Sizes(
        word_embeddings=words.numel(),
        other_embeddings=embeddings + (languages * d if model.language_embeddings else 0),
        layers=sum(weight.numel() for weight in inside.values()) - embeddings,
        head=head if with_head else 0,
        transform=transform,
        adapters=count_adapters(hf.base_model, model.lora) if model.lora else 0,
    )


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
        sizes = count_in(family, values, ModelConfig(), 0)
        tied = d * values["vocab_size"] if values["tie_word_embeddings"] else 0
        self._a_token = 2 * sizes.layers
        self._a_label = 2 * (sizes.head + tied + (d * d if conditioned_head else 0))
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
