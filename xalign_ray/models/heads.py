"""Masked-LM heads: the decoder over the vocabulary, and the prediction head that is conditioned on the language."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# The decoder over the vocabulary, whose weight gradient autograd can go on adding to where it lies.

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
        """Logits [N, V], on a GPU [N, V padded], of transformed hidden states [N, d]."""
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


class HeadTransform(nn.Module):
    """RoBERTa's prediction head without its decoder: LayerNorm(GELU(W h + b)). [N, d] -> [N, d]."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.layer_norm = nn.LayerNorm(width, eps=epsilon)

    @classmethod
    def copy_of(cls, head: Any) -> HeadTransform:
        """A copy of the layers of an `XLMRobertaLMHead`, extended or not."""
        made = cls(head.dense.out_features, head.layer_norm.eps)
        made.dense, made.layer_norm = copy.deepcopy(head.dense), copy.deepcopy(head.layer_norm)
        return made

    def forward(self, hidden: Tensor) -> Tensor:
        """Transformed states [N, d], the decoder's input."""
        return self.layer_norm(F.gelu(self.dense(hidden)))


def extend_input(transform: Any, width: int) -> None:
    """Makes room for a language vector behind each hidden state that a head reads, in place (DICT-MLM).

    The first layer W [d, d] becomes W_c [d, d + width]. Its left block stays as it was, so that a continued model
    starts from its own head; the right block is drawn from normal(0, 0.02). Decoder and tie to the words stay.

    Args:
        transform: the module with that layer, as `dense`; with a bias or without.
    """
    before = transform.dense
    extended = nn.Linear(before.in_features + width, before.out_features, bias=before.bias is not None)
    with torch.no_grad():
        extended.weight.normal_(0.0, 0.02)
        extended.weight[:, : before.in_features] = before.weight
        if before.bias is not None:
            extended.bias.copy_(before.bias)
    transform.dense = extended


def append_language(hidden: Tensor, language_vectors: Tensor) -> Tensor:
    """[h_i ; M[lang_i]], the input of an extended head: [N, d] and [N, d_lang] -> [N, d + d_lang]."""
    return torch.cat([hidden, language_vectors], dim=-1)


class ConditionedHead(nn.Module):
    """An extended head alone, for a folder whose stock class cannot hold it.

    logits = t E^T + b with t = LayerNorm(GELU(W_c [h ; M[lang]] + b_c)); E is the encoder's word embedding table.
    """

    def __init__(self, transform: nn.Module, languages: int, word_embeddings: nn.Embedding) -> None:
        """A head with new weights around `transform`, which is extended."""
        super().__init__()
        width = word_embeddings.embedding_dim
        self.languages = nn.Embedding(languages, width)
        self.transform = transform
        extend_input(transform, width)
        self.decoder = nn.Linear(width, word_embeddings.num_embeddings)
        self.decoder.weight = word_embeddings.weight

    def forward(self, hidden: Tensor, language: Tensor) -> Tensor:
        """Logits [N, V] of hidden states [N, d] in the languages [N]."""
        return self.decoder(self.transform(append_language(hidden, self.languages(language))))
