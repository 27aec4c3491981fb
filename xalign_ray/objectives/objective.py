"""What an objective is: the interface between one loss, the encoder it trains and the micro-step it is asked in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

from xalign_ray.text.dictionary import DictionaryPairs


class Encoder(Protocol):
    """What a loss may ask of an encoder, of whatever family; see models/encoder.py for shapes."""

    def encode(self, batch: Mapping[str, Tensor]) -> Tensor: ...
    def predict(self, hidden: Tensor, language: Tensor) -> Tensor: ...
    def embed(self, ids: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Given:
    """What a loss may be built from, besides its own options."""

    pairs: DictionaryPairs | None
    seed: int


@dataclass(frozen=True)
class MicroStep:
    """One forward pass: the rows, and which part of the terms that no row belongs to is computed in it.

    Attributes:
        batch: this micro-batch as tensors on the encoder's device, [B, L] each, B >= 0.
        part: (index, of): such a term is cut into `of` slices, one for each rank and micro-step of the global step.
        step: number of the global step, from 0.
    """

    encoder: Encoder
    batch: Mapping[str, Tensor]
    part: tuple[int, int]
    step: int

    @cached_property
    def hidden(self) -> Tensor:
        """Hidden states of the rows, [B, L, d], computed once for all losses that read them."""
        return self.encoder.encode(self.batch)


class Objective(nn.Module, ABC):
    """A loss as a sum over what it counts; the loop divides by the global step's count (METHODS 1.4).

    It calls the same modules on every rank in every micro-step, with zero rows if it has none (ZERO 1).
    """

    def __init__(self, settings: Any, given: Given) -> None:
        super().__init__()
        self.settings = settings
        self.given = given

    @abstractmethod
    def forward(self, micro_step: MicroStep) -> Tensor:
        """The sum, a scalar in fp32."""

    @abstractmethod
    def count(self, share: Mapping[str, np.ndarray], parts: Sequence[tuple[int, int]], step: int) -> float:
        """How many things a rank's sums over one global step run over: its share of the rows, all its slices."""
