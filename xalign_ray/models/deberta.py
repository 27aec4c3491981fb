"""The DeBERTa-v2 family, with mDeBERTa: attention by content and by distance (He et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from xalign_ray.models.bert import Bert
from xalign_ray.models.family import Values
from xalign_ray.private.transformers import deberta_distances

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class DebertaV2(Bert):
    """DeBERTa-v2: BERT's layers, whose attention adds the distance of two tokens to their score.

    Distances are counted along the row, so those within an example are the same wherever it stands. The stock classes
    multiply the word vectors by the mask of the attention, which must then be one of tokens; `run` calls their two
    halves with a mask of pairs of tokens.
    """

    model_type: ClassVar[str] = "deberta-v2"
    defaults: ClassVar[Values] = {
        "model_type": "deberta-v2",
        "vocab_size": 128100,
        "hidden_size": 1536,
        "num_hidden_layers": 24,
        "num_attention_heads": 24,
        "intermediate_size": 6144,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": 512,
        "type_vocab_size": 0,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "is_decoder": False,
        "relative_attention": False,
        "max_relative_positions": -1,
        "position_buckets": -1,
        "position_biased_input": True,
        "pos_att_type": None,
        "share_att_key": False,
        "norm_rel_ebd": "none",
        "conv_kernel_size": 0,
    }
    stock: ClassVar[str] = "DebertaV2"
    options: ClassVar[Values] = {}
    token_types: ClassVar[str] = ""  # of released models
    dense_only: ClassVar[bool] = True
    no_masked_lm: ClassVar[str] = (
        "was trained to find replaced words; the masked-LM head that transformers gives it is a new one"
    )

    def incompatible(self, values: Values) -> str:
        """A convolution would mix the examples of a row; a narrow table is of another width than d."""
        if values["conv_kernel_size"] > 0:
            return (
                f"has a convolution over {values['conv_kernel_size']} tokens (conv_kernel_size), which would mix the "
                "examples of a row; take one without, such as microsoft/mdeberta-v3-base"
            )
        width = values.get("embedding_size", values["hidden_size"])
        if width != values["hidden_size"]:
            return (
                f"has word embeddings of width {width} and states of {values['hidden_size']}; only an encoder whose "
                "embedding_size is its hidden_size can be continued"
            )
        return ""

    def products(self, values: Values) -> int:
        """A score is the sum of up to three."""
        return super().products(values) + len(_by_distance(values))

    def kept_per_token(self, values: Values) -> int:
        """BERT's, and the key once more, scaled."""
        return super().kept_per_token(values) + values["hidden_size"]

    def kept_per_row(self, values: Values, length: int) -> int:
        """The scores of each head, the scores by distance before the look-up, and a copy of its indices."""
        distances = len(_by_distance(values)) * 2 * _span(values)
        return values["num_attention_heads"] * length * (length + distances) + distances * values["hidden_size"]

    def arguments(self, config: Any, batch: Mapping[str, Tensor]) -> dict[str, Any]:
        """Positions, which most of its models do not read; token types where it has some."""
        return super().arguments(config, batch) if config.type_vocab_size else {"position_ids": batch["position_ids"]}

    def run(self, model: Any, vectors: Tensor, attention_mask: Tensor, layer: int | None, **arguments: Any) -> Tensor:
        """The embeddings first, then the layers under the mask [B, 1, L, L]."""
        config, distances = model.config, None
        if config.relative_attention:
            buckets = getattr(config, "position_buckets", -1)
            distances = _distances(vectors.shape[1], buckets, _furthest(config.to_dict()), vectors.device)
        embedded = model.embeddings(inputs_embeds=vectors, **arguments)
        made = model.encoder(embedded, attention_mask, output_hidden_states=layer is not None, relative_pos=distances)
        return made.last_hidden_state if layer is None else made.hidden_states[layer]


@lru_cache(maxsize=8)
def _distances(length: int, buckets: int, furthest: int, device: torch.device) -> Tensor:
    """Of each two tokens of a row, [1, L, L]; made once, for the stock function copies from the host."""
    import torch

    with torch.inference_mode(mode=False):  # the first to ask may only score; others train with the same tensor
        row = torch.empty(length, 0)
        return deberta_distances(row, buckets, furthest).to(device)


def _by_distance(values: Values) -> list[str]:
    """What adds to a score besides the words: "c2p", "p2c"; a config.json has a list, or names with a bar between."""
    kinds = values["pos_att_type"] or []
    names = kinds.split("|") if isinstance(kinds, str) else kinds
    return [name.strip().lower() for name in names] if values["relative_attention"] else []


def _furthest(values: Values) -> int:
    """The largest distance that has a row of its table; larger ones share it."""
    furthest = values.get("max_relative_positions", -1)
    return furthest if furthest > 0 else values["max_position_embeddings"]


def _span(values: Values) -> int:
    """Half of the rows of the table of distances."""
    return values["position_buckets"] if values["position_buckets"] > 0 else _furthest(values)
