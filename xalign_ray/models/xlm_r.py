"""The XLM-R family: BERT's layers, positions from behind the padding id, one token type (Conneau et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from xalign_ray.config.schema import ModelConfig
from xalign_ray.models.bert import Bert
from xalign_ray.models.family import Values

if TYPE_CHECKING:
    from torch import Tensor, nn


class XlmR(Bert):
    """XLM-R. With one token type it cannot see the segments of a pair, whatever the recipe's streams ask for."""

    model_type: ClassVar[str] = "xlm-roberta"
    defaults: ClassVar[Values] = {**Bert.defaults, "model_type": "xlm-roberta", "pad_token_id": 1}
    # The config class takes BERT's epsilon and two types; released models have these.
    from_scratch: ClassVar[Values] = {
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    stock: ClassVar[str] = "XLMRoberta"
    head: ClassVar[str] = "lm_head"
    token_types: ClassVar[str] = "roberta.embeddings.token_type_embeddings.weight"
    transform: ClassVar[str] = "lm_head."
    output_bias: ClassVar[str] = "lm_head.bias"
    counts_from_padding: ClassVar[bool] = True

    def values(self, model: ModelConfig, vocab_size: int, max_positions: int, pad_id: int) -> dict[str, Any]:
        """The table of positions has rows for ids up to the padding id, which no token has."""
        return super().values(model, vocab_size, max_positions + pad_id + 1, pad_id)

    def max_length(self, values: Values) -> int:
        """The positions behind the padding id."""
        return values["max_position_embeddings"] - values["pad_token_id"] - 1

    def arguments(self, config: Any, batch: Mapping[str, Tensor]) -> dict[str, Any]:
        """BERT's, with positions moved behind the padding id."""
        moved = batch["position_ids"] + config.pad_token_id + 1
        return super().arguments(config, batch) | {"position_ids": moved}

    def copy_transform(self, hf: Any) -> nn.Module:
        """The head's layers without its decoder."""
        from xalign_ray.models.heads import HeadTransform

        return HeadTransform.copy_of(hf.lm_head)
