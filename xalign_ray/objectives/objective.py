"""What an objective is: the interface between one loss, the encoder it trains and the micro-step it is asked in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from xalign_ray.errors import ConfigError
from xalign_ray.layout import labelled_at
from xalign_ray.text.dictionary import DictionaryPairs

Gather = Callable[[Tensor], Tensor]  # every rank's rows one below the other, in order of rank; called by all ranks


class TrainableEncoder(Protocol):
    """What a loss may ask of an encoder, of whatever family; see models/encoder.py for shapes."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def num_hidden_layers(self) -> int: ...
    def encode(self, batch: Mapping[str, Tensor], layer: int | None = None) -> Tensor: ...
    def predict(self, hidden: Tensor, language: Tensor, transform: nn.Module | None = None) -> Tensor: ...
    def copy_transform(self) -> nn.Module: ...
    def embed(self, ids: Tensor) -> Tensor: ...


class SpecialIds(Protocol):
    """The ids of the tokenizer's special pieces that a loss puts around a word."""

    @property
    def cls(self) -> int: ...
    @property
    def sep(self) -> int: ...


@dataclass(frozen=True)
class LossContext:
    """What a loss may be built from, besides its own options."""

    pairs: DictionaryPairs | None
    seed: int
    encoder: TrainableEncoder
    special: SpecialIds | None


@dataclass(frozen=True)
class MicroStep:
    """One forward pass: the rows, and which part of the terms that no row belongs to is computed in it.

    Attributes:
        batch: this micro-batch as tensors on the encoder's device, [B, L] each, B >= 0, those of the columns that the
            losses need besides them which the feed made for these rows, and where things stand in them (see
            train/micro_batch.py): a loss that asks a tensor where, by a mask or `nonzero`, waits for the GPU.
        part: (index, of): such a term is cut into `of` slices, one for each rank and micro-step of the global step.
        step: number of the global step, from 0.
        metrics: what losses log besides themselves, by name: a sum and what it runs over.
    """

    encoder: TrainableEncoder
    batch: Mapping[str, Tensor]
    part: tuple[int, int]
    step: int
    metrics: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @cached_property
    def hidden(self) -> Tensor:
        """Hidden states of the rows, [B, L, d], computed once for all losses that read them."""
        return self.encoder.encode(self.batch)

    @cached_property
    def labelled_at(self) -> Tensor:
        """Where the N labels stand, of rows laid one after the other: int64 [N]."""
        return self.batch["labelled_at"] if "labelled_at" in self.batch else labelled_at(self.batch["labels"])

    def log(self, name: str, values: Tensor) -> None:
        """Adds a metric that is the mean of such values over the global step; every rank logs the same names."""
        summed = values.detach().double().sum()
        self.metrics[name] = (summed, torch.full_like(summed, values.numel()))


class Objective(nn.Module, ABC):
    """A loss as a sum over what it counts; the loop divides by the global step's count.

    It calls the same modules on every rank in every micro-step, with zero rows if it has none:
    docs/explanation/methods.md, Losses over workers and micro-steps.

    Attributes:
        extra_columns: columns of the batch that it needs besides the inputs of the model; a batch without such rows may
            lack them.
        predicts: whether it asks the head once for each thing that it counts.
    """

    extra_columns: ClassVar[tuple[str, ...]] = ()
    predicts: ClassVar[bool] = False

    def __init__(self, settings: Any, context: LossContext) -> None:
        super().__init__()
        self.settings = settings
        self.context = context

    @abstractmethod
    def forward(self, micro_step: MicroStep) -> Tensor:
        """The sum, a scalar in fp32."""

    @abstractmethod
    def count(self, batch: Mapping[str, np.ndarray], parts: Sequence[tuple[int, int]], step: int) -> float:
        """How many things a rank's sums over one global step run over: its rows and all its slices."""

    def after_step(self, encoder: TrainableEncoder, gather: Gather) -> None:
        """What it does once the weights have moved; called by all ranks once a global step, by default nothing.

        Args:
            encoder: the trained encoder, with its new weights.
            gather: joins what the ranks hold.
        """


@runtime_checkable
class ScoresLabels(Protocol):
    """A loss by which held-out rows can be scored: each term of its sum is that of a label."""

    def of_labels(self, micro_step: MicroStep) -> Tensor:
        """The terms of the sum, [N], in the order of labels."""
        ...


def check_layer(kind: str, layer: int | None, encoder: TrainableEncoder) -> None:
    """Refuses a layer that the encoder lacks.

    Raises:
        ConfigError: naming the objective and the encoder's depth.
    """
    if layer is not None and layer > encoder.num_hidden_layers:
        raise ConfigError(f"objective {kind} reads layer {layer}, but the encoder has {encoder.num_hidden_layers}.")
