"""The language-conditioned prediction head: a family's head, given the language of the word that it must predict."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class HeadTransform(nn.Module):
    """RoBERTa's prediction head without its decoder: LayerNorm(GELU(W h + b)). [N, d] -> [N, d]."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.layer_norm = nn.LayerNorm(width, eps=epsilon)

    @classmethod
    def copy_of(cls, head: Any) -> HeadTransform:
        """The layers of a `XLMRobertaLMHead`, extended or not, with weights of their own."""
        made = cls(head.dense.out_features, head.layer_norm.eps)
        made.dense, made.layer_norm = copy.deepcopy(head.dense), copy.deepcopy(head.layer_norm)
        return made

    def forward(self, hidden: Tensor) -> Tensor:
        """What the decoder reads."""
        return self.layer_norm(F.gelu(self.dense(hidden)))


def extend_input(transform: Any, width: int) -> None:
    """Makes room for a language vector behind each hidden state that a head reads, in place (DICT-MLM).

    The first layer W [d, d] becomes W_c [d, d + width]. Its left block stays as it was, so that a continued model
    starts from its own head; the right block is drawn from normal(0, 0.02). Decoder and tie to the words stay.

    Args:
        transform: what holds that layer, as `dense`; with a bias or without.
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
    """[h_i ; M[lang_i]]: what a extended head reads. hidden [N, d], language_vectors [N, d_lang] -> [N, d + d_lang]."""
    return torch.cat([hidden, language_vectors], dim=-1)


class ConditionedHead(nn.Module):
    """A extended head by itself, for a folder whose stock class cannot hold it.

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
