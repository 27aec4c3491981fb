"""The EuroBERT family: Llama's layers, seen in both directions, under a bare output table (Boizard et al. 2025)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from xalign_ray.config.schema import ModelConfig
from xalign_ray.errors import ConfigError
from xalign_ray.models.family import Classes, Counts, Family, Values

if TYPE_CHECKING:
    from torch import Tensor, nn


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
    from_scratch: ClassVar[Values] = {
        "bos_token_id": None,
        "eos_token_id": None,
    }  # the class's default is Llama 3's ids
    rotary: ClassVar[bool] = True
    dropouts: ClassVar[tuple[str, ...]] = ("attention_dropout",)
    token_types: ClassVar[str] = ""
    layers: ClassVar[str] = "layers"
    final_norm: ClassVar[str] = "norm"
    transform: ClassVar[str] = "lm_head."
    output_bias: ClassVar[str] = "lm_head.bias"
    may_be_untied: ClassVar[bool] = True

    def segments(self, values: Values) -> int:  # noqa: ARG002
        """All text is of one."""
        return 1

    def unsupported(self, model: ModelConfig) -> str:
        """Its classes have no token types, which would carry the languages in an export."""
        return (
            "has no token types to carry model.language_embeddings; leave them out" if model.language_embeddings else ""
        )

    def has_head(self, names: Collection[str], values: Values) -> bool:
        """A tied table is not stored; an encoder without a head has no prefix before its names."""
        tied = values["tie_word_embeddings"] and any(name.startswith("model.") for name in names)
        return tied or super().has_head(names, values)

    def count(self, values: Values, read_by_head: int) -> Counts:  # noqa: ARG002 - its head has no layer to extend
        """Its parameters; several query heads may share a key and a value."""
        d, f = values["hidden_size"], values["intermediate_size"]
        width, shared = _widths(values)
        attention = 2 * d * width + 2 * d * shared + (width + 2 * shared + d if values["attention_bias"] else 0)
        feed_forward = 3 * d * f + (2 * f + d if values["mlp_bias"] else 0)
        return Counts(
            other_embeddings=0,
            layers=values["num_hidden_layers"] * (attention + feed_forward + 2 * d) + d,
            transform=0,
            output_bias=values["vocab_size"] if values["mlp_bias"] else 0,
        )

    def kept_per_token(self, values: Values) -> int:
        """Of each RMSNorm its input, normalised value and output; otherwise as ModernBERT."""
        width, shared = _widths(values)
        return 6 * values["hidden_size"] + 3 * width + 2 * shared + 4 * values["intermediate_size"]

    def older_keys(self, config: Any) -> dict[str, Any]:
        """The base of the rotary positions, by the name that released folders have."""
        return {"rope_theta": config.rope_parameters["rope_theta"]}

    def classes(self, with_languages: bool = False) -> Classes:  # noqa: ARG002 - see `unsupported`
        """Stock classes."""
        return Classes.stock("EuroBert")

    def arguments(self, config: Any, batch: Mapping[str, Tensor]) -> dict[str, Any]:  # noqa: ARG002
        """Positions."""
        return {"position_ids": batch["position_ids"]}

    def predict(self, hf: Any, hidden: Tensor) -> Tensor:
        """The output table."""
        return hf.lm_head(hidden)

    def transform_of(self, hf: Any) -> nn.Module:  # noqa: ARG002
        """None: it cannot be conditioned on the language.

        Raises:
            ConfigError: always; recipes are refused earlier, see `unsupported`.
        """
        raise ConfigError(
            "EuroBERT's head has no layer that could read the language: set model.conditioned_head to false."
        )

    def copy_transform(self, hf: Any) -> nn.Module:  # noqa: ARG002
        """Nothing between the states and the table."""
        from torch import nn

        return nn.Identity()

    def new_transform(self, config: Any) -> nn.Module:
        """The same."""
        return self.copy_transform(config)


def _widths(values: Values) -> tuple[int, int]:
    """Of the queries of a token together, and of its keys."""
    heads = values["num_attention_heads"]
    each = values["head_dim"] or values["hidden_size"] // heads
    return heads * each, (values["num_key_value_heads"] or heads) * each
