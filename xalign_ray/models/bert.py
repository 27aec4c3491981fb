"""The BERT family (Devlin et al. 2019), and XLM-R (Conneau et al. 2020) and RoBERTa (Liu et al. 2019) of its layers."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from xalign_ray.config.schema import ModelConfig
from xalign_ray.models.family import Classes, Counts, Family, Values
from xalign_ray.private.transformers import bert_transform

if TYPE_CHECKING:
    from torch import Tensor, nn
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


# The XLM-R family: BERT's layers, positions from behind the padding id, one token type (Conneau et al. 2020).


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

    def classes(self, with_languages: bool = False) -> Classes:  # noqa: ARG002 - it has token types anyway
        """Stock classes."""
        return Classes.stock("XLMRoberta", add_pooling_layer=False)

    def arguments(self, config: Any, batch: Mapping[str, Tensor]) -> dict[str, Any]:
        """BERT's, with positions moved behind the padding id."""
        moved = batch["position_ids"] + config.pad_token_id + 1
        return super().arguments(config, batch) | {"position_ids": moved}

    def predict(self, hf: Any, hidden: Tensor) -> Tensor:
        """`lm_head` as a whole."""
        return hf.lm_head(hidden)

    def transform_of(self, hf: Any) -> nn.Module:
        """The head owns its layers itself."""
        return hf.lm_head

    def copy_transform(self, hf: Any) -> nn.Module:
        """The head's layers without its decoder."""
        from xalign_ray.models.heads import HeadTransform

        return HeadTransform.copy_of(hf.lm_head)

    def new_transform(self, config: Any) -> nn.Module:
        """dense, GELU, LayerNorm."""
        from xalign_ray.models.heads import HeadTransform

        return HeadTransform(config.hidden_size, config.layer_norm_eps)


# The RoBERTa family (Liu et al. 2019): XLM-R's layers and head over other vocabularies; CamemBERT is one of it.


class Roberta(XlmR):
    """RoBERTa, of one language in its released models."""

    model_type: ClassVar[str] = "roberta"
    defaults: ClassVar[Values] = {**XlmR.defaults, "model_type": "roberta", "vocab_size": 50265}

    def classes(self, with_languages: bool = False) -> Classes:  # noqa: ARG002 - it has token types anyway
        """Stock classes."""
        return Classes.stock("Roberta", add_pooling_layer=False)


class Camembert(Roberta):
    """CamemBERT: RoBERTa over a SentencePiece vocabulary of French (Martin et al. 2020)."""

    model_type: ClassVar[str] = "camembert"
    defaults: ClassVar[Values] = {**Roberta.defaults, "model_type": "camembert", "vocab_size": 30522}

    def classes(self, with_languages: bool = False) -> Classes:  # noqa: ARG002 - it has token types anyway
        """Stock classes."""
        return Classes.stock("Camembert", add_pooling_layer=False)
