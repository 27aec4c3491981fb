"""The BERT family (Devlin et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from xalign_ray.models.family import Family, Values

if TYPE_CHECKING:
    from torch import Tensor


class Bert(Family):
    """BERT; the base sizes of section 3 of the paper."""

    model_type: ClassVar[str] = "bert"
    defaults: ClassVar[Values] = {
        "model_type": "bert",
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "is_decoder": False,
    }
    from_scratch: ClassVar[Values] = {}
    dropouts: ClassVar[tuple[str, ...]] = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    stock: ClassVar[str] = "Bert"
    options: ClassVar[Values] = {"add_pooling_layer": False}
    head: ClassVar[str] = "cls"
    token_types: ClassVar[str] = "bert.embeddings.token_type_embeddings.weight"
    transform: ClassVar[str] = "cls.predictions.transform."
    output_bias: ClassVar[str] = "cls.predictions.bias"

    def kept_per_token(self, values: Values) -> int:
        """Input, query, key, value, attention's output and its copy by token, and the tensors around each LayerNorm."""
        return 9 * values["hidden_size"] + 2 * values["intermediate_size"]

    def arguments(self, config: Any, batch: Mapping[str, Tensor]) -> dict[str, Any]:
        """Positions; segments beyond the model's token types are its last."""
        types = batch["segment_ids"].clamp(max=config.type_vocab_size - 1)
        return {"position_ids": batch["position_ids"], "token_type_ids": types}
