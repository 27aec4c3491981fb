"""The decoder over the vocabulary, whose weight gradient autograd can go on adding to where it lies."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

PADDED_TO = {
    "cuda": 64
}  # by device: with a vocabulary of 119,547 a GPU's products take six times as long as with 119,552


class Decoder(nn.Linear):
    """A linear layer whose weight is used a second time, as the table of word embeddings.

    On a GPU there are logits for a multiple of 64 pieces; those past the vocabulary are -inf, which no loss notices.

    Of torch's own linear layer the gradient is a view, to which autograd adds that of the table in a third array of
    [V, d]: on a CPU 45 ms of a step of 620 with 119,000 pieces of 256 (in place: 17), and 0.7 GiB with 250,000 of 768.
    """

    @classmethod
    def of(cls, linear: nn.Linear) -> Decoder:
        """The same weights and bias, which it shares."""
        made = cls(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        made.weight, made.bias = linear.weight, linear.bias
        return made

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name for it
        """Logits [N, V], on a GPU [N, V padded], of what the head makes of hidden states, [N, d]."""
        if extra := -self.out_features % PADDED_TO.get(input.device.type, 1):
            return self._padded(input, extra)
        if torch.is_autocast_enabled(input.device.type):  # it casts weights, and remembers their casts
            return super().forward(input)
        made: Any = _Linear.apply(input, self.weight, self.bias)
        return made

    def _padded(self, hidden: Tensor, extra: int) -> Tensor:
        """The copies of the weights are smaller than the cast that autocast would make anyway."""
        kind = hidden.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
        weight = F.pad(self.weight.to(dtype), (0, 0, 0, extra))
        bias = None if self.bias is None else F.pad(self.bias.to(dtype), (0, extra), value=-torch.inf)
        return F.linear(hidden.to(dtype), weight, bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        return nn.functional.linear(hidden, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        hidden, weight = ctx.saved_tensors
        return gradient @ weight, gradient.t() @ hidden, gradient.sum(0) if ctx.needs_input_grad[2] else None
