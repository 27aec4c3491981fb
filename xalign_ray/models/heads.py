"""The language-conditioned prediction head: BERT's head, told the language of the word that it must predict."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertLMPredictionHead, BertPredictionHeadTransform


def widen(predictions: BertLMPredictionHead, width: int) -> None:
    """Makes room for a language vector behind each hidden state that BERT's head reads, in place (METHODS 4.4).

    The first layer W [d, d] becomes W_c [d, d + width]. Its left block stays as it was, so that a continued model
    starts from its own head; the right block is drawn from normal(0, 0.02). Decoder and tie to the words stay.
    """
    transform = predictions.transform
    narrow = transform.dense
    wide = nn.Linear(narrow.in_features + width, narrow.out_features)
    with torch.no_grad():
        wide.weight.normal_(0.0, 0.02)
        wide.weight[:, : narrow.in_features] = narrow.weight
        wide.bias.copy_(narrow.bias)
    transform.dense = wide


def join_language(hidden: Tensor, language_vectors: Tensor) -> Tensor:
    """[h_i ; M[lang_i]]: what a widened head reads. hidden [N, d], language_vectors [N, d_lang] -> [N, d + d_lang]."""
    return torch.cat([hidden, language_vectors], dim=-1)


class ConditionedHead(nn.Module):
    """A widened head by itself, for a folder whose stock class cannot hold it.

    logits = t E^T + b with t = LayerNorm(GELU(W_c [h ; M[lang]] + b_c)); E is the encoder's word embedding table.
    """

    def __init__(self, config: BertConfig, languages: int, word_embeddings: nn.Embedding) -> None:
        super().__init__()
        width = config.hidden_size
        self.languages = nn.Embedding(languages, width)
        self.transform = BertPredictionHeadTransform(config)
        self.transform.dense = nn.Linear(2 * width, width)
        self.decoder = nn.Linear(width, word_embeddings.num_embeddings)
        self.decoder.weight = word_embeddings.weight

    def forward(self, hidden: Tensor, language: Tensor) -> Tensor:
        """Logits [N, V] of hidden states [N, d] in the languages [N]."""
        return self.decoder(self.transform(join_language(hidden, self.languages(language))))
