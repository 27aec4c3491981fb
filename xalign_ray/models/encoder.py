"""The encoder that every objective trains: examples kept apart in a row, and optional language embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from xalign_ray.config.schema import ModelConfig, RunConfig
from xalign_ray.errors import ConfigError
from xalign_ray.models import attention
from xalign_ray.models.adapters import add_adapters
from xalign_ray.models.attention import laid_out
from xalign_ray.models.backbone import backbone, of_start
from xalign_ray.models.extension import add_rows, exchange_rows
from xalign_ray.models.family import Family
from xalign_ray.models.heads import Decoder, append_language, extend_input
from xalign_ray.models.open import open_encoder
from xalign_ray.models.open_folder import one_at_a_time, open_weights
from xalign_ray.models.refusals import check_family, check_fits, refuse_new_head
from xalign_ray.models.vectors import load_frozen
from xalign_ray.private.transformers import attention_of, set_attention
from xalign_ray.vocabulary.exchange import StartRows

READ = ("input_ids", "position_ids", "segment_ids", "language_ids", "example_ids")  # what `encode` needs of a batch


class AlignedEncoder(nn.Module):
    """An encoder of transformers as the objectives see it: `encode`, `embed`, and with a masked-LM head `predict`.

    Each of the three calls modules and never reads a `.weight`, so that they are right at every ZeRO stage when called
    inside the forward pass of the module given to DeepSpeed. All accept zero rows.
    """

    def __init__(self, hf: Any, family: Family, languages: nn.Embedding | None, conditioned: bool) -> None:
        super().__init__()
        assert languages is not None or not conditioned, "a conditioned head reads the language embeddings"
        self.hf = hf
        self.family = family
        self.languages = languages
        self.conditioned = conditioned
        self.compiled = False  # whether losses may compile their computations too
        # A list keeps them out of the module's state: they are not trained, cast to bf16 or split by ZeRO.
        self.frozen: list[Any] = []
        self.new_rows = range(0)  # of the vocabulary's tables, which it gained for this run

    @property
    def hidden_size(self) -> int:
        """d, the width of a hidden state."""
        return self.hf.config.hidden_size

    @property
    def num_hidden_layers(self) -> int:
        """How many layers there are."""
        return self.hf.config.num_hidden_layers

    def encode(self, batch: Mapping[str, Tensor], layer: int | None = None) -> Tensor:
        """Hidden states [B, L, d] of the last layer, or after `layer` of them (from 1).

        Reads the keys in READ, each [B, L], and their layout where the batch has it. A token attends to the tokens of
        its own example and no others, so that a packed row is the same as its examples one by one. What stands at
        padding means nothing.
        The language vector is added to the word vector, before position, segment and LayerNorm (DICT-MLM).
        """
        ids, examples = batch["input_ids"], batch["example_ids"]
        if not len(ids):
            # Models cannot reshape zero rows; a row of padding calls the same modules, as the other ranks need.
            return self.encode({key: batch[key].new_zeros(1, ids.shape[1]) for key in READ}, layer)[:0]
        if attention_of(self.hf.config) != attention.VARLEN and not self.family.unpacked:
            mask = self.family.mask(self.hf.config, attention.same_example(examples))
            return self._encode(batch, layer, attention_mask=mask)
        laid = laid_out(batch)
        real_at, offsets = laid["real_at"], laid["offsets"]
        if not len(real_at):  # of nothing but padding the modules are called too
            real_at, offsets = real_at.new_zeros(1), torch.arange(2, device=ids.device)
        longest = ids.shape[1]
        places = attention.by_example(offsets, longest)
        packed = {key: batch[key].flatten()[real_at][None] for key in READ}
        mask = self.family.packed_mask(self.hf.config, longest)
        hidden = self._encode(packed, layer, attention_mask=mask, **places)
        return hidden.new_zeros(ids.numel(), self.hidden_size).index_put((real_at,), hidden[0]).unflatten(0, ids.shape)

    def _encode(self, batch: Mapping[str, Tensor], layer: int | None, attention_mask: Any, **places: Any) -> Tensor:
        vectors = self.embed(batch["input_ids"])
        if self.languages is not None:
            vectors = vectors + self.languages(batch["language_ids"])
        arguments = self.family.arguments(self.hf.config, batch)
        with record_function("step/encoder"):
            return self.family.run(self.hf.base_model, vectors, attention_mask, layer, **arguments, **places)

    def attend(self, implementation: str) -> None:
        """Sets the `attention.implementation`; all give the same up to rounding.

        Does nothing for a family that is `dense_only`.
        """
        assert not self.family.dense_only or implementation == attention.DENSE, "recipes are refused, see check_family"
        if not self.family.dense_only:
            self.hf.set_attn_implementation(implementation)

    def predict(self, hidden: Tensor, language: Tensor, transform: nn.Module | None = None) -> Tensor:
        """Logits [N, V] over the vocabulary, of hidden states [N, d] whose label is in the language [N].

        Args:
            transform: one to use in place of the head's own, such as `copy_transform` gives; the decoder is shared.
        """
        if self.hf.base_model is self.hf:
            raise ConfigError("A loss uses the masked-LM head, but its choice does not set `predicts_pieces = True`.")
        if self.conditioned and self.languages is not None:
            hidden = append_language(hidden, self.languages(language))
        if transform is None:
            return self.family.predict(self.hf, hidden)
        return self.hf.get_output_embeddings()(transform(hidden))

    def copy_transform(self) -> nn.Module:
        """The layers of the head before its decoder, as a copy with the same weights."""
        assert self.hf.base_model is not self.hf, "a loss that uses the head sets `predicts_pieces = True`"
        return self.family.copy_transform(self.hf)

    def vector_width(self, layer: int | None = None) -> int:
        """Numbers of a vector that `behind_pooling` gives."""
        return self.behind_pooling(torch.zeros(1, self.hidden_size), layer).shape[1]

    def behind_pooling(self, pooled: Tensor, layer: int | None = None) -> Tensor:
        """Sentence vectors fp32 [n, D] of pooled states [n, d]: the output of the frozen modules behind the pooling.

        Args:
            layer: of the states; a layer in the middle has no such modules.
        """
        if layer is not None or not self.frozen:
            return pooled
        with torch.autocast(pooled.device.type, enabled=False):
            for module in self.frozen:
                pooled = module.to(pooled.device)({"sentence_embedding": pooled})["sentence_embedding"]
        return pooled

    def embed(self, ids: Tensor) -> Tensor:
        """Rows of the word embedding table, [..., d], of the ids [...]; the decoder mostly shares the table."""
        return self.hf.get_input_embeddings()(ids)


def build_encoder(
    model: ModelConfig,
    vocab_size: int,
    languages: Sequence[str],
    max_positions: int,
    pad_id: int,
    new_rows: Mapping[int, Sequence[int]] | None = None,
    with_head: bool = True,
    start_rows: StartRows | None = None,
) -> AlignedEncoder:
    """An encoder from the recipe's sizes, or from the folder or hub model that `model.init_from` names.

    New weights are drawn from torch's global generator: seed it before, equally on every rank.

    Args:
        model: the recipe's `model` block.
        vocab_size: ids of the run's tokenizer.
        languages: the run's languages in order; the index is the language id.
        max_positions: the longest row, in tokens.
        pad_id: the run's padding id.
        new_rows: for each id that the run's tokenizer has on top of the folder's, the ids of the folder's pieces whose
            mean it starts as; `vocabulary.surgery` makes them.
        with_head: whether a loss will call `predict`; without, no head is held in memory, nor drawn.
        start_rows: of a vocabulary that replaces the folder's, what each row is made of; `vocabulary.exchange` chooses
            them.

    Raises:
        ConfigError: when `model.init_from` cannot be found or does not fit the run's tokenizer and rows.
    """
    family, values = backbone(model, vocab_size, max_positions, pad_id)
    if model.init_from is not None:
        vocabulary_here = 0 if start_rows else min(new_rows) if new_rows else vocab_size
        check_fits(model.init_from, family, values, vocabulary_here, max_positions, pad_id)
    hf = _load(model, family, values, with_head)
    if start_rows:
        exchange_rows(hf, start_rows, pad_id)
    elif new_rows:
        add_rows(hf, new_rows)
    table = None
    if model.language_embeddings:
        table = nn.Embedding(len(languages), hf.config.hidden_size)
        nn.init.normal_(table.weight, 0.0, 0.02)
    if model.conditioned_head:
        extend_input(family.transform_of(hf), hf.config.hidden_size)
    if with_head:
        hf.set_output_embeddings(Decoder.of(hf.get_output_embeddings()))
    encoder = AlignedEncoder(hf, family, table, model.conditioned_head)
    if model.init_from is not None:
        encoder.frozen = load_frozen(open_encoder(model.init_from))
    encoder.new_rows = range(min(new_rows), max(new_rows) + 1) if new_rows else range(0)
    if model.lora is not None:
        add_adapters(hf, model.lora)
    return encoder


def open_start(init_from: str, family: Family, values: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """The masked language model that a run continues, and the weights of its head that were drawn: all or none.

    Raises:
        ConfigError: it cannot be opened, see `open_weights`, or its head has an untied table.
    """
    classes, config = family.classes(), _config(family, values)
    options = {"attn_implementation": attention_of(config)}
    with of_start():
        if classes.masked_lm is None:
            return open_weights(init_from, classes.encoder, config, **options, **classes.options)
        hf, drawn = open_weights(init_from, classes.masked_lm, config, **options)
    tied = values["tie_word_embeddings"] and not family.no_masked_lm
    if tied and hf.get_output_embeddings().weight is not hf.get_input_embeddings().weight:
        raise ConfigError(
            f"model.init_from: {init_from} has an output table that differs from its word embeddings, though its "
            "config.json says that they are tied; only an encoder with one table can be continued."
        )
    return hf, drawn


def check_opens(config: RunConfig) -> None:
    """Opens the encoder that a recipe begins from, once and before anything is started: workers open it again.

    Raises:
        ConfigError: it cannot be continued, or lacks a head that the recipe's losses need.
    """
    if config.model.init_from is None:
        return
    family, values = backbone(config.model, 0, config.data.max_seq_length, 0)
    check_family(config, family)
    check_fits(config.model.init_from, family, values, 0, config.data.max_seq_length, values["pad_token_id"])
    _, drawn = open_start(config.model.init_from, family, values)
    if drawn:
        refuse_new_head(config)


@one_at_a_time
def _load(model: ModelConfig, family: Family, values: Mapping[str, Any], with_head: bool) -> Any:
    if model.init_from is None:
        classes, config = family.classes(), _config(family, values)
        return classes.masked_lm(config) if with_head else classes.bare(config)
    hf, _ = open_start(model.init_from, family, values)
    return hf if with_head else hf.base_model


def _config(family: Family, values: Mapping[str, Any]) -> Any:
    config = family.classes().config.from_dict(dict(values))
    set_attention(config, attention.OWN if family.dense_only else attention.DENSE)
    return config
