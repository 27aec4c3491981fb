"""Any text encoder that transformers' AutoModel opens and no file here names: one example a row, no masked LM."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from xalign_ray.errors import DataError
from xalign_ray.models.family import Classes, Family, Values

if TYPE_CHECKING:
    from torch import Tensor

_READ = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("max_position_embeddings", "pad_token_id"),
)
# Decoders to transformers, whose states sentence encoders pool: Qwen3-Embedding, EmbeddingGemma.
_EMBEDDERS = ("qwen3", "gemma3_text")
_OF_HEADS = ("classif", "qa_", "summary", "cls", "pooler")  # in the keys of dropouts that no state passes


class Generic(Family):
    """A stock encoder, called as its users call it: with word vectors and a mask of tokens; positions are its own.

    Its values are read through its config class, which knows them by other names too (`dim`, `n_layers`).
    """

    from_scratch: ClassVar[Values] = {}
    may_be_untied: ClassVar[bool] = True
    dense_only: ClassVar[bool] = True
    unpacked: ClassVar[bool] = True
    no_masked_lm: ClassVar[str] = "is trained as AutoModel opens it, without a masked-LM head"

    def __init__(self, model_type: str) -> None:
        from transformers import CONFIG_MAPPING

        self._config: Any = CONFIG_MAPPING[model_type]
        values = self._config().to_dict()
        self.model_type = model_type  # type: ignore[misc]
        self.defaults = self.complete(values)  # type: ignore[misc]
        self.dropouts = tuple(  # type: ignore[misc]
            key
            for key, rate in values.items()
            if "dropout" in key and isinstance(rate, float | int) and not any(part in key for part in _OF_HEADS)
        )

    def complete(self, saved: Values) -> dict[str, Any]:
        """With the field's names for its sizes."""
        try:
            config = self._config.from_dict(dict(saved))
        except Exception as error:  # of values by strangers: what config classes raise has no class in common
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise DataError(f"a config.json of the family {self.model_type} is damaged: {reason}") from None
        wide = getattr(config, "intermediate_size", None) or getattr(config, "d_ff", None) or 4 * config.hidden_size
        read = {
            **{key: getattr(config, key, None) for key in _READ},
            "intermediate_size": wide,
            "is_decoder": getattr(config, "is_decoder", False) and not config.is_encoder_decoder,
            "tie_word_embeddings": getattr(config, "tie_word_embeddings", True),
            "type_vocab_size": getattr(config, "type_vocab_size", None) or 1,
        }
        named = {**config.to_dict(), **saved}
        aliases = config.attribute_map.keys() - read.keys()  # XLM's `n_words`, which would overrule another vocab_size
        return {**{key: value for key, value in named.items() if key not in aliases}, **read}

    def for_rows(self, values: Values, length: int) -> dict[str, Any]:  # noqa: ARG002
        """Unchanged: its table of positions has a fixed length."""
        return dict(values)

    def max_length(self, values: Values) -> int:
        """Its positions, but for those below the first; without a table of positions as long as you like."""
        from xalign_ray.models.sizes import on_meta
        from xalign_ray.models.tokenized import first_position

        positions = values["max_position_embeddings"]
        return positions - first_position(on_meta(self, values)) if positions else sys.maxsize

    def kept_per_token(self, values: Values) -> int:
        """As of BERT's layers."""
        return 9 * values["hidden_size"] + 2 * values["intermediate_size"]

    def kept_per_row(self, values: Values, length: int) -> int:
        """The scores of its attention, which no kernel recomputes."""
        return values["num_attention_heads"] * length**2

    def classes(self) -> Classes:
        """Its stock class; of T5's kinds that of the encoder alone."""
        encoder = _encoder_class(self.model_type)
        takes_pooling = "add_pooling_layer" in inspect.signature(encoder.__init__).parameters
        return Classes(self._config, None, encoder, {"add_pooling_layer": False} if takes_pooling else {})

    def arguments(self, config: Any, batch: Mapping[str, Tensor]) -> dict[str, Any]:  # noqa: ARG002
        """None: an example is a row."""
        return {}

    def run(
        self, model: Any, vectors: Tensor, attention_mask: None, layer: int | None, *, cu_seq_lens_q: Tensor, **_: Any
    ) -> Tensor:
        """Each example as a padded row: [1, T, d] -> [1, T, d]."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        assert attention_mask is None
        lengths = cu_seq_lens_q.diff()
        rows = pad_sequence([*vectors[0].split(lengths.tolist())], batch_first=True)
        mask = torch.arange(rows.shape[1], device=rows.device) < lengths[:, None]
        output = model(inputs_embeds=rows, attention_mask=mask.long(), output_hidden_states=layer is not None)
        states = output.last_hidden_state if layer is None else output.hidden_states[layer]
        assert states.shape[:2] == rows.shape[:2], "a state of each token"
        return states[mask][None]


@cache
def generic(model_type: str) -> Generic | None:
    """The family of a type of model that transformers has as an encoder of text; None of others."""
    return Generic(model_type) if _encoder_class(model_type) else None


def _encoder_class(model_type: str) -> Any:
    """The class of transformers; None for a decoder, a model of images, or one that comes with its own code."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_MASKED_LM_MAPPING, MODEL_FOR_TEXT_ENCODING_MAPPING, MODEL_MAPPING

    if model_type not in CONFIG_MAPPING:
        return None
    config, defaults = CONFIG_MAPPING[model_type], CONFIG_MAPPING[model_type]()
    if not all(hasattr(defaults, key) for key in ("hidden_size", "num_hidden_layers", "vocab_size")):
        return None
    of_text = MODEL_FOR_TEXT_ENCODING_MAPPING.get(config, None)
    if defaults.is_encoder_decoder:
        return of_text
    is_listed = of_text or config in MODEL_FOR_MASKED_LM_MAPPING or model_type in _EMBEDDERS
    encoder = MODEL_MAPPING.get(config, None) if is_listed else None
    if encoder is None or isinstance(encoder, tuple):  # Funnel's: one makes fewer states than tokens
        return None
    # FNet mixes padding into each token, and CLIP's text model takes ids alone.
    return (
        encoder if {"attention_mask", "inputs_embeds"} <= inspect.signature(encoder.forward).parameters.keys() else None
    )
