"""The EuroBERT family: Llama's layers, seen in both directions, under a bare output table (Boizard et al. 2025)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar

from xalign_ray.models.family import Family, Values

if TYPE_CHECKING:
    from torch import nn


class EuroBert(Family):
    """EuroBERT: rotary positions, RMSNorm, gated feed-forward layers, grouped queries; no segments, no token types.

    Its head is an output table alone, which released models do not tie to the word embeddings.
    """

    model_type: ClassVar[str] = "eurobert"
    defaults: ClassVar[Values] = {
        "model_type": "eurobert",
        "vocab_size": 128256,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": None,
        "head_dim": None,
        "intermediate_size": 3072,
        "max_position_embeddings": 8192,
        "pad_token_id": 128001,
        "tie_word_embeddings": False,
        "is_decoder": False,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
    }
    from_scratch: ClassVar[Values] = {"bos_token_id": None, "eos_token_id": None}  # the class has Llama 3's ids
    rotary: ClassVar[bool] = True
    dropouts: ClassVar[tuple[str, ...]] = ("attention_dropout",)
    stock: ClassVar[str] = "EuroBert"
    layers: ClassVar[str] = "layers"
    final_norm: ClassVar[str] = "norm"
    head: ClassVar[str] = "lm_head"
    output_bias: ClassVar[str] = "lm_head.bias"
    may_be_untied: ClassVar[bool] = True

    def has_head(self, names: Collection[str], values: Values) -> bool:
        """A tied table is not stored; an encoder without a head has no prefix before its names."""
        tied = values["tie_word_embeddings"] and any(name.startswith("model.") for name in names)
        return tied or "lm_head.weight" in names

    def kept_per_token(self, values: Values) -> int:
        """Of each RMSNorm its input, normalised value and output; otherwise as ModernBERT."""
        width, shared = _widths(values)
        return 6 * values["hidden_size"] + 3 * width + 2 * shared + 4 * values["intermediate_size"]

    def older_keys(self, config: Any) -> dict[str, Any]:
        """The base of the rotary positions, by the name that released folders have."""
        return {"rope_theta": config.rope_parameters["rope_theta"]}

    def copy_transform(self, hf: Any) -> nn.Module:  # noqa: ARG002
        """Nothing between the states and the table."""
        from torch import nn

        return nn.Identity()


def _widths(values: Values) -> tuple[int, int]:
    """Of the queries of a token together, and of its keys."""
    heads = values["num_attention_heads"]
    each = values["head_dim"] or values["hidden_size"] // heads
    return heads * each, (values["num_key_value_heads"] or heads) * each
