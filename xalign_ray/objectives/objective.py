"""Base classes of losses, and the forward pass that they share.

A loss whose terms stand in one micro-step is an `Objective`. A loss whose terms each read the whole global step, such
as contrast with all other pairs as negatives, is a `StepObjective`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from xalign_ray.config.derive import TERMS_AT_ONCE
from xalign_ray.errors import ConfigError
from xalign_ray.models.attention import HALF, labelled_at, laid_out
from xalign_ray.models.encoder import AlignedEncoder
from xalign_ray.objectives.sentences import concat_rows, pair_sides, sentence_rows
from xalign_ray.private.torch import rows_vary
from xalign_ray.streams.collate import SpecialIds
from xalign_ray.vocabulary.dictionary import DictionaryPairs

# Cross-entropy whose gradient takes the place of the logits: one [N, V] array instead of three.


class SummedCrossEntropy(torch.autograd.Function):
    """The sum over N rows of -log softmax(logits)[label], in nats; logits in fp32 are overwritten.

    With a vocabulary of 250,000 pieces logits, their softmax and its gradient are most of a step's memory, and on a CPU
    to get that memory from the system takes longer than to compute with it.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        """logits [N, V] of a call whose own backward pass does not read them, as a linear layer; labels [N]."""
        rows = torch.arange(len(labels), device=labels.device)
        asked = logits[rows, labels]
        highest, at = logits.max(dim=1)
        chances = torch.softmax(logits, dim=1, out=logits)
        log_sum = highest - chances[rows, at].log()  # that of the asked one may be too small for fp32
        chances[rows, labels] -= 1
        ctx.save_for_backward(logits)
        return (log_sum - asked).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """softmax - 1 at the label, times the gradient of the sum."""
        (chances,) = ctx.saved_tensors
        return chances.mul_(gradient), None


def _sum_of_logs(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum of log sum exp(row); the loss's gradient takes the place of the logits, in two passes over them."""
    wide = logits.float()
    highest = wide.max(dim=1, keepdim=True).values
    log_sum = highest + (wide - highest).exp().sum(dim=1, keepdim=True).log()
    at_label = torch.arange(logits.shape[1], device=logits.device) == labels[:, None]
    logits.copy_((wide - log_sum).exp() - at_label.float())
    return log_sum.sum()


def _scale(gradient: Tensor, factor: Tensor) -> None:
    gradient.mul_(factor)  # not compiled it takes four times as long on a GPU: the factor has another type


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled when it is first needed: importing the compiler costs every process a second."""
    return torch.compile(function)


class HalfCrossEntropy(torch.autograd.Function):
    """As `SummedCrossEntropy`, for logits in half precision: compiled, without their copy in fp32."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        """logits [N, V] as there. V is known to the compiled code, without which its reads are single numbers."""
        asked = logits.gather(1, labels[:, None]).sum(dtype=torch.float32)  # in there torch 2.11 reads it too late
        rows_vary(logits, labels)
        total: Any = _compiled(_sum_of_logs)(logits, labels) - asked
        ctx.save_for_backward(logits)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """As there."""
        (logits,) = ctx.saved_tensors
        _compiled(_scale)(logits, gradient)
        return logits, None


def summed_cross_entropy(logits: Tensor, labels: Tensor, compiled: bool = False) -> Tensor:
    """The sum over N rows of -log softmax(logits)[label], in nats; nobody may read the logits [N, V] afterwards.

    Args:
        compiled: logits in half precision go through torch.compile, without their copy in fp32.
    """
    if compiled and logits.dtype in HALF and len(labels):
        sum_: Any = HalfCrossEntropy.apply(logits, labels.long())
    else:
        sum_ = SummedCrossEntropy.apply(logits.float(), labels.long())
    return sum_


Gather = Callable[[Tensor], Tensor]  # concatenates every rank's rows, in order of rank; called by all ranks


@dataclass(frozen=True)
class LossContext:
    """Material of a loss besides its own options."""

    pairs: DictionaryPairs | None
    seed: int
    encoder: AlignedEncoder
    special: SpecialIds | None


@dataclass(frozen=True)
class MicroStep:
    """One forward pass: the rows, and which part of the terms that no row belongs to is computed in it.

    Attributes:
        batch: this micro-batch as tensors on the encoder's device, [B, L] each, B >= 0; the columns that losses need
            besides, where the feed made them for these rows; and indexes into both (see train/step.py), because a loss
            that looks for places by a mask or `nonzero` waits for the GPU.
        part: (index, of): such a term is cut into `of` slices, one for each rank and micro-step of the global step.
        step: number of the global step, from 0.
        compare: compares the vectors of a `StepObjective` with all vectors of the step; by default a micro-step's own.
        beside: sides of sentence pairs that are encoded in one pass with the rows, for fewer and larger kernels.
        pair_states: of `pairs`, by layer.
        metrics: values that losses log besides themselves, by name: a sum and the count that it is over.
    """

    encoder: AlignedEncoder
    batch: Mapping[str, Tensor]
    part: tuple[int, int]
    step: int
    compare: Compare = field(default_factory=lambda: compare_alone)
    beside: tuple[str, ...] = ()
    pair_states: dict[int | None, tuple[Mapping[str, Tensor], Tensor]] = field(default_factory=dict)
    metrics: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @cached_property
    def hidden(self) -> Tensor:
        """Hidden states of the rows, [B, L, d], computed once for all losses that read them."""
        return self._encoded[0]

    def sentences(self, side: str) -> tuple[Mapping[str, Tensor], Tensor]:
        """The rows of a side of sentence pairs, see `sentence_rows`, and their hidden states."""
        rows = sentence_rows(self.batch, side)
        at = self.beside.index(side) + 1 if side in self.beside else 0
        return rows, self._encoded[at] if at else self.encoder.encode(rows)

    def pairs(self, layer: int | None) -> tuple[Mapping[str, Tensor], Tensor]:
        """The rows of all sides of sentence pairs, in the order of `pair_sides`, and their hidden states.

        They are encoded once for all losses that read this layer.
        """
        if layer not in self.pair_states:
            rows = concat_rows(*(sentence_rows(self.batch, side) for side in pair_sides(self.batch)))
            self.pair_states[layer] = rows, self.encoder.encode(rows, layer)
        return self.pair_states[layer]

    @cached_property
    def _encoded(self) -> Sequence[Tensor]:
        """Hidden states of the rows, and of each side that is encoded with them."""
        sides = [sentence_rows(self.batch, side) for side in self.beside]
        if not sides:
            return [self.encoder.encode(self.batch)]
        rows = [laid_out(self.batch), *sides]
        return self.encoder.encode(concat_rows(*rows)).split([len(side["input_ids"]) for side in rows])

    @cached_property
    def labelled_at(self) -> Tensor:
        """Places of the N labels in the flattened rows: int64 [N]."""
        return self.batch["labelled_at"] if "labelled_at" in self.batch else labelled_at(self.batch["labels"])

    def log(self, name: str, values: Tensor) -> None:
        """Adds a metric: the mean of the values over the global step; every rank logs the same names."""
        summed = values.detach().double().sum()
        self.metrics[name] = (summed, torch.full_like(summed, values.numel()))


class Objective(nn.Module, ABC):
    """A loss as a sum over the things that it counts; the loop divides by the global step's count.

    It calls the same modules on every rank in every micro-step, with zero rows if it has none:
    docs/explanation/methods.md, Losses over workers and micro-steps.

    Attributes:
        extra_columns: columns of the batch that it needs besides the inputs of the model; a batch without such rows may
            lack them.
        predicts: whether it runs the head over the rows' hidden states, once for each counted thing.
        beside: a side of sentence pairs that it encodes once, in the same pass as the rows if another loss reads those.
        gathers_counted: whether `after_step` gathers one row for each counted thing, so that the sizes are known.
    """

    extra_columns: ClassVar[tuple[str, ...]] = ()
    predicts: ClassVar[bool] = False
    beside: ClassVar[str] = ""
    gathers_counted: ClassVar[bool] = False

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

    def after_step(self, encoder: AlignedEncoder, gather: Gather) -> None:
        """Hook after the weights have moved; called by all ranks once a global step, by default nothing.

        Args:
            encoder: the trained encoder, with its new weights.
            gather: concatenates a tensor's rows over all ranks.
        """


class StepObjective(Objective):
    """A loss over one vector for each thing of the global step, of all ranks and micro-steps.

    Its terms read all P vectors, but only one micro-batch at a time fits into memory with its activations. So the loop
    embeds each micro-batch without gradients, joins the vectors of all ranks and calls `compare` once. Then it embeds
    each micro-batch again, with the same dropout, and continues the gradient by each vector into the encoder
    (GradCache, Gao et al. 2021). A rank whose share is one micro-batch embeds it once. Loss and gradient equal those
    of one large batch, for any number of ranks and micro-steps.

    `count` is the number of vectors of this rank.
    """

    @abstractmethod
    def embed(self, micro_step: MicroStep) -> tuple[Tensor, Tensor]:
        """Vectors with gradient, fp32 [n, D], and marks that are compared along with them, int64 [n, M].

        The only method that may call the encoder or draw random numbers.
        """

    @abstractmethod
    def compare(self, vectors: Tensor, marks: Tensor, own: slice) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum of the terms `own`, fp32, and metrics: values by name whose mean over the step is logged.

        Args:
            vectors: of the whole step, [P, D], in order of rank and micro-step.
            marks: of the whole step, [P, M].
            own: which of the P terms to sum; the other calls, on this rank and others, sum the rest.
        """

    def forward(self, micro_step: MicroStep) -> Tensor:
        """The sum of this micro-step's terms, whose gradient is that of the whole step's sum by its vectors."""
        vectors, marks = self.embed(micro_step)
        compared = micro_step.compare(self, vectors.detach(), marks)
        for name, values in compared.metrics.items():
            micro_step.log(name, values)
        onward = (vectors * compared.gradient).sum()
        return compared.total + (onward - onward.detach())


@dataclass(frozen=True)
class Compared:
    """What n vectors give within their global step.

    Attributes:
        total: the sum of their terms.
        gradient: of the whole step's sum by them, [n, D].
        metrics: values by name.
    """

    total: Tensor
    gradient: Tensor
    metrics: Mapping[str, Tensor]


Compare = Callable[[StepObjective, Tensor, Tensor], Compared]


def compare_terms(loss: StepObjective, vectors: Tensor, marks: Tensor, own: slice) -> Compared:
    """The terms `own` of a step and the gradient of their sum by all its vectors, [P, D]; in fp32.

    Takes a block of terms at a time: P terms that read P vectors each would need P * P numbers.
    """
    vectors = vectors.detach().requires_grad_()
    totals, metrics = [], []
    blocks = [slice(at, min(at + TERMS_AT_ONCE, own.stop)) for at in range(own.start, own.stop, TERMS_AT_ONCE)]
    with torch.enable_grad(), torch.autocast(vectors.device.type, enabled=False):
        for block in blocks or [own]:
            total, logged = loss.compare(vectors, marks, block)
            total.backward()
            totals.append(total.detach())
            metrics.append({name: values.detach() for name, values in logged.items()})
    assert vectors.grad is not None
    joined = {name: torch.cat([of_block[name] for of_block in metrics]) for name in metrics[0]}
    return Compared(torch.stack(totals).sum(), vectors.grad, joined)


def compare_alone(loss: StepObjective, vectors: Tensor, marks: Tensor) -> Compared:
    """Vectors that are all of their step."""
    return compare_terms(loss, vectors, marks, slice(0, len(vectors)))


@runtime_checkable
class ScoresLabels(Protocol):
    """A loss by which held-out rows can be scored: each term of its sum is that of a label."""

    def of_labels(self, micro_step: MicroStep) -> Tensor:
        """The terms of the sum, [N], in the order of labels."""
        ...


def check_layer(kind: str, layer: int | None, encoder: AlignedEncoder) -> None:
    """Refuses a layer that the encoder lacks.

    Raises:
        ConfigError: naming the objective and the encoder's depth.
    """
    if layer is not None and layer > encoder.num_hidden_layers:
        raise ConfigError(f"objective {kind} reads layer {layer}, but the encoder has {encoder.num_hidden_layers}.")
