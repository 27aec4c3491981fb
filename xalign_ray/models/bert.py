"""The BERT family (Devlin et al. 2019)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from xalign_ray.models.family import Classes, Counts, Family, Values
from xalign_ray.private.transformers import bert_transform

if TYPE_CHECKING:
    from torch import Tensor, nn


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
    token_types: ClassVar[str] = "bert.embeddings.token_type_embeddings.weight"
    transform: ClassVar[str] = "cls.predictions.transform."
    output_bias: ClassVar[str] = "cls.predictions.bias"

    def count(self, values: Values, read_by_head: int) -> Counts:
        """Its parameters, also XLM-R's."""
        d, f, vocabulary = values["hidden_size"], values["intermediate_size"], values["vocab_size"]
        norm = 2 * d
        attention = 4 * (d * d + d) + norm
        feed_forward = (d * f + f) + (f * d + d) + norm
        return Counts(
            other_embeddings=(values["max_position_embeddings"] + values["type_vocab_size"]) * d + norm,
            layers=values["num_hidden_layers"] * (attention + feed_forward),
            transform=(read_by_head * d + d) + norm,
            output_bias=vocabulary,
        )

    def kept_per_token(self, values: Values) -> int:
        """Input, query, key, value, attention's output and its copy by token, and the tensors around each LayerNorm."""
        return 9 * values["hidden_size"] + 2 * values["intermediate_size"]

    def classes(self, with_languages: bool = False) -> Classes:  # noqa: ARG002 - it has token types anyway
        """Stock classes."""
        return Classes.stock("Bert", add_pooling_layer=False)

    def arguments(self, config: Any, batch: Mapping[str, Tensor]) -> dict[str, Any]:
        """Positions; segments beyond the model's token types are its last."""
        return {
            "position_ids": batch["position_ids"],
            "token_type_ids": batch["segment_ids"].clamp(max=config.type_vocab_size - 1),
        }

    def predict(self, hf: Any, hidden: Tensor) -> Tensor:
        """`cls` as a whole."""
        return hf.cls(hidden)

    def transform_of(self, hf: Any) -> nn.Module:
        """The head's transform."""
        return hf.cls.predictions.transform

    def copy_transform(self, hf: Any) -> nn.Module:
        """Its copy."""
        return copy.deepcopy(hf.cls.predictions.transform)

    def new_transform(self, config: Any) -> nn.Module:
        """dense, activation, LayerNorm."""
        return bert_transform(config)
