"""ModernBERT whose token types carry the language, registered with transformers: for exports only."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import AutoConfig, ModernBertConfig, ModernBertModel, ModernBertPreTrainedModel


class LanguageModernBertConfig(ModernBertConfig):
    """ModernBERT's, with the number of token types: one for each of `xalign_languages`."""

    model_type = "xalign-modernbert"
    type_vocab_size: int = 1


class LanguageModernBertModel(ModernBertModel):
    """ModernBERT that adds a vector of the token type to each word vector before LayerNorm.

    Without `token_type_ids` all are 0, as in BERT.
    """

    config_class = LanguageModernBertConfig

    def __init__(self, config: LanguageModernBertConfig) -> None:
        super().__init__(config)
        self.embeddings.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Any = None,
        position_ids: Any = None,
        inputs_embeds: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """As ModernBERT's."""
        embeddings: Any = self.embeddings
        words: Tensor = embeddings.tok_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        if token_type_ids is None:
            token_type_ids = torch.zeros(words.shape[:-1], dtype=torch.long, device=words.device)
        vectors: Any = words + embeddings.token_type_embeddings(token_type_ids)
        return super().forward(
            attention_mask=attention_mask, position_ids=position_ids, inputs_embeds=vectors, **kwargs
        )


class _OnLanguages(ModernBertPreTrainedModel):
    """Puts the encoder with token types under one of ModernBERT's heads, which hands unknown arguments on to it."""

    config_class = LanguageModernBertConfig

    def __init__(self, config: LanguageModernBertConfig) -> None:
        super().__init__(config)
        self.model = LanguageModernBertModel(config)
        self.post_init()


AutoConfig.register(LanguageModernBertConfig.model_type, LanguageModernBertConfig)
transformers.AutoModel.register(LanguageModernBertConfig, LanguageModernBertModel)
for task in ("MaskedLM", "TokenClassification", "SequenceClassification", "MultipleChoice", "QuestionAnswering"):
    name, stock = f"LanguageModernBertFor{task}", getattr(transformers, f"ModernBertFor{task}")
    head = globals()[name] = type(name, (_OnLanguages, stock), {"__module__": __name__})
    getattr(transformers, f"AutoModelFor{task}").register(LanguageModernBertConfig, head)
LanguageModernBertForMaskedLM: Any = globals()["LanguageModernBertForMaskedLM"]
