"""Cross-entropy whose gradient takes the place of the logits: one [N, V] array instead of three."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


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


def summed_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum over N rows of -log softmax(logits)[label], in nats; nobody may read the logits [N, V] afterwards."""
    sum_: Any = SummedCrossEntropy.apply(logits.float(), labels.long())
    return sum_
