"""Interface of an architecture: the values of its config, its sizes, and the arguments of its model."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from xalign_ray.config.schema import ModelConfig
from xalign_ray.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor, nn

Values = Mapping[str, Any]  # of a config.json


@dataclass(frozen=True)
class Classes:
    """The classes of transformers that hold a family.

    Attributes:
        config: of both models. masked_lm: with a prediction head; None if none is trained. encoder: without.
        options: of the encoder's class besides the config, so that it has no layer that nothing here reads.
    """

    config: Any
    masked_lm: Any
    encoder: Any
    options: Mapping[str, Any]

    def bare(self, config: Any) -> Any:
        """A new encoder without a head."""
        return self.encoder(config, **self.options)


class Family(ABC):
    """A family of encoders of transformers. A module that defines one imports neither torch nor transformers at once.

    Attributes:
        model_type: its name in a config.json.
        defaults: what its config class means by keys that a config.json leaves out, where we read them.
        from_scratch: what stands in the config.json of an encoder from scratch besides the recipe's sizes.
        dropouts: the keys that `model.hidden_dropout_prob` sets; `model.attention_probs_dropout_prob` sets those
            whose name begins with attention.
        stock: the classes of transformers that hold it begin with this. options: of the encoder's class.
        token_types: in a state dict, the table that token types choose from; empty if it has none.
        layers: the list of its layers in its encoder. final_norm: what norms the states of the last; empty if nothing.
        head: the module of its masked-LM head in its masked language model.
        transform: in a state dict, the prefix of the head's layers before its decoder; empty if it has none.
        output_bias: in a state dict, the bias of the decoder.
        rotary: whether positions are computed, not looked up, so that rows may be longer than those trained on before.
        counts_from_padding: whether positions begin behind the padding id, so that another one moves them.
        may_be_untied: whether the head may have an output table apart from the word embeddings, as released models do.
        dense_only: whether its attention is special and under a mask: no kernel can stand in for it.
        unpacked: whether each example is padded to a separate row, for a mask of tokens is all that it takes.
        no_masked_lm: why its masked LM cannot be trained, after its name; empty if it can.
    """

    model_type: ClassVar[str]
    defaults: ClassVar[Values]
    from_scratch: ClassVar[Values]
    dropouts: ClassVar[tuple[str, ...]]
    stock: ClassVar[str]
    options: ClassVar[Values] = {}
    token_types: ClassVar[str] = ""
    layers: ClassVar[str] = "encoder.layer"
    final_norm: ClassVar[str] = ""
    head: ClassVar[str] = ""
    transform: ClassVar[str] = ""
    output_bias: ClassVar[str] = ""
    rotary: ClassVar[bool] = False
    counts_from_padding: ClassVar[bool] = False
    may_be_untied: ClassVar[bool] = False
    dense_only: ClassVar[bool] = False
    unpacked: ClassVar[bool] = False
    no_masked_lm: ClassVar[str] = ""

    def complete(self, saved: Values) -> dict[str, Any]:
        """A config.json with the values that it leaves out, where we read them."""
        return {**self.defaults, **saved}

    def values(self, model: ModelConfig, vocab_size: int, max_positions: int, pad_id: int) -> dict[str, Any]:
        """The config.json of an encoder from scratch, for rows of at most `max_positions` tokens."""
        return dict(self.defaults) | {
            **self.from_scratch,
            "model_type": self.model_type,
            "vocab_size": vocab_size,
            "hidden_size": model.hidden_size,
            "num_hidden_layers": model.num_hidden_layers,
            "num_attention_heads": model.num_attention_heads,
            "intermediate_size": model.intermediate_size,
            "max_position_embeddings": max_positions,
            "pad_token_id": pad_id,
        }

    def with_dropout(self, values: Values, model: ModelConfig) -> dict[str, Any]:
        """The values with the dropout of a recipe; with their own where it is None."""
        asked = dict.fromkeys(self.dropouts, model.hidden_dropout_prob)
        if model.attention_probs_dropout_prob is not None:
            asked |= {key: model.attention_probs_dropout_prob for key in asked if key.startswith("attention")}
        return {**values, **{key: rate for key, rate in asked.items() if rate is not None}}

    def has_dropout(self, values: Values) -> bool:
        """Whether anything is dropped in training."""
        return any(values[key] for key in self.dropouts)

    def drops_attention(self, values: Values) -> bool:
        """Whether attention scores are dropped: the backward pass needs them where no kernel recomputes them."""
        return any(values[key] for key in self.dropouts if key.startswith("attention"))

    def dropout_in_words(self, values: Values) -> str:
        """Its dropout for a reader: one number where there is one."""
        rates = {key: values[key] for key in self.dropouts}
        if len(set(rates.values())) == 1:
            return f"{next(iter(rates.values())):g}"
        return ", ".join(f"{key} {rate:g}" for key, rate in rates.items())

    def for_rows(self, values: Values, length: int) -> dict[str, Any]:
        """The values of an encoder that is trained on rows of another length from now on."""
        room = values["max_position_embeddings"]
        return {**values, "max_position_embeddings": max(room, length) if self.rotary else room}

    def max_length(self, values: Values) -> int:
        """The longest row, in tokens."""
        return values["max_position_embeddings"]

    def unsupported(self, model: ModelConfig) -> str:
        """Why it cannot be trained with these settings, after the name of the family; empty if it can."""
        carries = bool(self.token_types) or not model.language_embeddings
        return "" if carries else "has no token types to carry model.language_embeddings; leave them out"

    def incompatible(self, values: Values) -> str:  # noqa: ARG002
        """Why an encoder with these values cannot be continued, after its name; empty if it can."""
        return ""

    def has_head(self, names: Collection[str], values: Values) -> bool:  # noqa: ARG002
        """Whether weights of these names hold a masked-LM head."""
        bias, transform = self.output_bias or None, self.transform or None
        return any((bias and name.endswith(bias)) or (transform and transform in name) for name in names)

    def older_keys(self, config: Any) -> dict[str, Any]:  # noqa: ARG002
        """What transformers 4 reads of a config.json and 5 writes in another form."""
        return {}

    def windows(self, values: Values) -> list[int | None]:
        """Of each layer, how far a token sees to either side; None is everywhere."""
        return [None] * values["num_hidden_layers"]

    def segments(self, values: Values) -> int:
        """How many segments it distinguishes."""
        return values.get("type_vocab_size") or 1

    @abstractmethod
    def kept_per_token(self, values: Values) -> int:
        """Numbers per token that a layer keeps for its backward pass, without dropout."""

    def kept_per_row(self, values: Values, length: int) -> int:  # noqa: ARG002
        """Numbers per row of that length, in addition to those per token; by default none."""
        return 0

    def products(self, values: Values) -> int:  # noqa: ARG002
        """Products of width d for two tokens that see each other: for their score, and for the sum of the values."""
        return 2

    def classes(self) -> Classes:
        """Its Hugging Face classes."""
        import transformers

        names = [f"{self.stock}{end}" for end in ("Config", "ForMaskedLM", "Model")]
        if missing := [name for name in names if not hasattr(transformers, name)]:
            own_name = f"{type(self).__module__}.{type(self).__name__}"
            raise ConfigError(f"transformers has no {missing[0]}: correct `stock` of {own_name}.")
        config, masked_lm, encoder = (getattr(transformers, name) for name in names)
        return Classes(config, masked_lm, encoder, self.options)

    def arguments(self, config: Any, batch: Mapping[str, Tensor]) -> dict[str, Any]:  # noqa: ARG002
        """Arguments of its model besides the word vectors and the mask: by default positions.

        Args:
            batch: `position_ids` and `segment_ids` [B, L]; both are 0 at the first token of an example.
        """
        return {"position_ids": batch["position_ids"]}

    def mask(self, config: Any, same_example: Tensor) -> Any:  # noqa: ARG002
        """Its `attention_mask`, made of bool [B, 1, L, L]: whether two tokens are of one example."""
        return same_example

    def packed_mask(self, config: Any, longest: int) -> Any:  # noqa: ARG002
        """Its `attention_mask` over tokens without padding: how far a token sees to either side; None is everywhere."""
        return None

    def compile(self, layer: nn.Module) -> None:
        """Compiles a layer of its encoder for batches of every size; layers that are alike share a graph."""
        layer.compile(dynamic=True)

    def run(self, model: Any, vectors: Tensor, attention_mask: Any, layer: int | None, **arguments: Any) -> Tensor:
        """Hidden states [B, L, d] of the last layer of its encoder, or after `layer` of them.

        Args:
            vectors: of the words, [B, L, d].
            attention_mask: of `mask`; of `packed_mask` where the rows are without padding.
            arguments: of `arguments`, and the places of examples in rows without padding.
        """
        with self._cut(model, layer):
            return model(inputs_embeds=vectors, attention_mask=attention_mask, **arguments).last_hidden_state

    @contextmanager
    def _cut(self, model: Any, layer: int | None) -> Iterator[None]:
        """Inside, the model ends after `layer` of its layers, whose states are not normed.

        Transformers would capture them by hooks, at which a compiled graph breaks, and compute the layers above too.
        """
        inside, _, name = self.layers.rpartition(".")
        owner = model.get_submodule(inside)
        layers = getattr(owner, name)
        if layer is None or layer == len(layers):
            yield
            return
        from torch.nn import Identity

        norm = getattr(model, self.final_norm) if self.final_norm else None
        setattr(owner, name, layers[:layer])
        if norm is not None:
            setattr(model, self.final_norm, Identity())
        try:
            yield
        finally:
            setattr(owner, name, layers)
            if norm is not None:
                setattr(model, self.final_norm, norm)

    def predict(self, hf: Any, hidden: Tensor) -> Tensor:
        """The head of its masked language model: hidden states [N, d], extended or not -> logits [N, V]."""
        return hf.get_submodule(self.head)(hidden)

    def transform_of(self, hf: Any) -> nn.Module:
        """The part of the head that owns its first layer, as `dense`."""
        assert self.transform, "a recipe that conditions its head is refused, see `unsupported`"
        return hf.get_submodule(self.transform.rstrip("."))

    def copy_transform(self, hf: Any) -> nn.Module:
        """A copy of the head's layers before its decoder, with the same weights."""
        return copy.deepcopy(self.transform_of(hf))
