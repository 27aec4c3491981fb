"""The ModernBERT family: rotary positions, no token types, local and global attention (Warner et al. 2024)."""

from __future__ import annotations

from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar

from xalign_ray.models.family import Family, Values
from xalign_ray.private.transformers import modernbert_after_norm

if TYPE_CHECKING:
    from torch import Tensor, nn


class ModernBert(Family):
    """ModernBERT. It knows no segments; a pair's positions may start again all the same, as rotary positions are given.

    Every third layer is global; the others see 64 tokens to either side, counted along the row as in the stock model.
    """

    model_type: ClassVar[str] = "modernbert"
    defaults: ClassVar[Values] = {
        "model_type": "modernbert",
        "vocab_size": 50368,
        "hidden_size": 768,
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
        "intermediate_size": 1152,
        "max_position_embeddings": 8192,
        "pad_token_id": 50283,
        "tie_word_embeddings": True,
        "is_decoder": False,
        "attention_bias": False,
        "mlp_bias": False,
        "norm_bias": False,
        "classifier_bias": False,
        "decoder_bias": True,
        "global_attn_every_n_layers": 3,
        "local_attention": 128,
        "embedding_dropout": 0.0,
        "attention_dropout": 0.0,
        "mlp_dropout": 0.0,
    }
    from_scratch: ClassVar[Values] = {  # the config class would name ids of ModernBERT's own vocabulary
        "bos_token_id": None,
        "eos_token_id": None,
        "cls_token_id": None,
        "sep_token_id": None,
    }
    rotary: ClassVar[bool] = True
    dropouts: ClassVar[tuple[str, ...]] = ("embedding_dropout", "attention_dropout", "mlp_dropout")
    stock: ClassVar[str] = "ModernBert"
    layers: ClassVar[str] = "layers"
    final_norm: ClassVar[str] = "final_norm"
    transform: ClassVar[str] = "head."
    output_bias: ClassVar[str] = "decoder.bias"

    def older_keys(self, config: Any) -> dict[str, Any]:
        """The bases of the rotary positions, for which 4 takes ModernBERT's own where it does not find them."""
        thetas = {kind: values["rope_theta"] for kind, values in config.rope_parameters.items()}
        return {"global_rope_theta": thetas["full_attention"], "local_rope_theta": thetas["sliding_attention"]}

    def windows(self, values: Values) -> list[int | None]:
        """Half of `local_attention` in the local layers: those that are listed, else two of three."""
        period = values["global_attn_every_n_layers"]
        kinds = values.get("layer_types") or [
            "sliding_attention" if layer % period else "full_attention" for layer in range(values["num_hidden_layers"])
        ]
        return [values["local_attention"] // 2 if kind == "sliding_attention" else None for kind in kinds]

    def kept_per_token(self, values: Values) -> int:
        """As BERT's, with a turned query and key, and the gate and product of the gated layer."""
        return 11 * values["hidden_size"] + 4 * values["intermediate_size"]

    def mask(self, config: Any, same_example: Tensor) -> dict[str, Tensor]:
        """One for each kind of layer: given one, the model would take it for both."""
        import torch

        places = torch.arange(same_example.shape[-1], device=same_example.device)
        near = (places[:, None] - places[None, :]).abs() <= config.sliding_window
        return {"full_attention": same_example, "sliding_attention": same_example & near}

    def packed_mask(self, config: Any, longest: int) -> dict[str, int]:
        """As `mask`. Global layers see as far as an example is long: they compile to the same graph as local ones."""
        return {"full_attention": longest, "sliding_attention": config.sliding_window}

    def compile(self, layer: nn.Module) -> None:
        """All but the norm before its attention, which the first layer lacks, so that all layers are one graph."""
        import torch

        after_norm = torch.compile(modernbert_after_norm, dynamic=True)

        def run(self: Any, hidden_states: Tensor, **arguments: Any) -> Tensor:
            normed = self.attn_norm(hidden_states)
            if normed is hidden_states:  # one tensor as both arguments would compile to another graph
                normed = normed.clone()
            return after_norm(self, hidden_states, normed, **arguments)

        def forward(self: Any, hidden_states: Tensor, **arguments: Any) -> Tensor:  # as that of the class does
            inside = partial(run, self, **arguments)
            if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
                return self._gradient_checkpointing_func(inside, hidden_states)
            return inside(hidden_states)

        layer.forward = MethodType(forward, layer)  # a method, so that it is that of the copy in a copy of the layer

    def predict(self, hf: Any, hidden: Tensor) -> Tensor:
        """Head and decoder stand apart."""
        return hf.decoder(hf.head(hidden))
