"""Every reason why a run cannot continue an encoder: by its files, its family, its head, its sizes, its tokenizer."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from xalign_ray.config.choices import OBJECTIVES
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.sources import FolderTokenizer, StartTokenizer
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.models.backbone import encoder_values, find_start, of_start, vocabulary_size
from xalign_ray.models.families import family_of
from xalign_ray.models.family import Family
from xalign_ray.models.hub import TOKENIZERS, encoder_folder
from xalign_ray.models.open import Opened
from xalign_ray.models.own_tokenizer import check_files
from xalign_ray.models.weight_files import read_weights
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import RUN_OF

NEW_HEAD = "with a newly drawn masked-LM head"


def check_head(config: RunConfig) -> None:
    """Refuses a masked LM over a head that would be new, by the names of the folder's weights.

    Raises:
        ConfigError: see `check_family` and `refuse_new_head`.
    """
    init_from = config.model.init_from
    values = encoder_values(init_from) if init_from else None
    if init_from is None or values is None:
        return
    check_family(config, family_of(init_from, values))
    if draws_head(config) and not config.train.head_first:
        refuse_new_head(config)
        say(f"warning: {init_from} is continued {NEW_HEAD}: until that is trained, its gradients harm the encoder.")


def draws_head(config: RunConfig) -> bool:
    """Whether masked LM would train a head that the encoder's files lack, by the names of its weights."""
    init_from = config.model.init_from
    predicts = any(loss.predicts_pieces for loss in config.objectives)
    if not (init_from and predicts and Path(init_from).is_dir()):
        return False
    with of_start():
        return not find_start(init_from).has_head


_OR_A_PLUGIN = ", or describe the family in a plug-in (docs/tutorials/add_a_family.md)"


def check_family(config: RunConfig, family: Family) -> None:
    """Refuses losses and settings that the continued encoder's family cannot do, whatever its weights.

    Raises:
        ConfigError: a loss, an attention or a way to save memory that it has not, or a plug-in that is not named.
    """
    start = f"model.init_from: {config.model.init_from} is of the family {family.model_type}, which"
    losses = [loss.kind for loss in config.objectives if loss.predicts_pieces]
    if family.no_masked_lm and losses:
        raise ConfigError(
            f"{start} {family.no_masked_lm}: objective {', '.join(losses)} cannot be trained. Take losses that predict "
            f"no words, such as sentence_contrast (continue/contrast){_OR_A_PLUGIN if family.unpacked else ''}."
        )
    losses = [loss.kind for loss in config.objectives if not loss.of_any_encoder]
    possible = [kind for kind, loss in OBJECTIVES.items() if loss.of_any_encoder]
    if family.unpacked and losses:
        raise ConfigError(
            f"{start} no file of xalign_ray/models describes: {' and '.join(possible)} train it, not "
            f"{', '.join(losses)}. Describe the family in a plug-in (docs/tutorials/add_a_family.md)."
        )
    train = config.train
    if (
        family.unpacked
        and train.gradient_checkpointing
        and not family.classes().encoder.supports_gradient_checkpointing
    ):
        raise ConfigError(f"{start} transformers cannot recompute: set train.gradient_checkpointing to false.")
    if family.unpacked and train.torch_compile:
        raise ConfigError(f"{start} is not compiled: set train.torch_compile to false.")
    module = type(family).__module__
    if module.partition(".")[0] != "xalign_ray" and module not in config.plugins:
        raise ConfigError(f"{start} {module} describes, a plug-in of another recipe here: name it in plugins.")
    if family.dense_only and config.train.attention == "varlen":
        raise ConfigError(f"{start} has its own attention: set train.attention to auto or dense.")


def refuse_new_head(config: RunConfig) -> None:
    """Of an encoder without a masked-LM head: refuses losses that would train one with the encoder, unless allowed.

    Raises:
        ConfigError: a loss predicts pieces.
    """
    losses = [loss.kind for loss in config.objectives if loss.predicts_pieces]
    if not losses or config.train.head_first or "new_head" in config.allow:
        return
    raise ConfigError(
        f"model.init_from: {config.model.init_from} has no masked-LM head, and objective {', '.join(losses)} would "
        "train a new one from random weights: its gradients harm the encoder. Leave it out of `objectives`, train the "
        "head first (`train.trainable: [[0, head], [0.5, all]]`), or set allow to [new_head]."
    )


def check_start(config: RunConfig) -> None:
    """Refuses an encoder that cannot be opened or continued, by its files or for lack of a network.

    Raises:
        ConfigError: it is not there, not whole, of another kind, or does not fit its tokenizer; what to do.
    """
    start, tokenizer = config.model.init_from, config.data.tokenizer
    if start is None or start.startswith(RUN_OF):
        return
    opened = find_start(start)
    with of_start():
        check_encoder_files(opened)
        is_its_own = isinstance(tokenizer, FolderTokenizer) and Path(tokenizer.path) == Path(start)
        if is_its_own or isinstance(tokenizer, StartTokenizer):
            check_files(opened.folder)
            ids, rows = vocabulary_size(str(opened.folder)), opened.config["vocab_size"]
            if ids is not None and ids > rows:
                raise DataError(
                    f"{start}: its tokenizer has {ids:,} ids, its config.json {rows:,} embeddings; they do not belong "
                    "together. Put the model's own tokenizer.json next to it."
                )


def check_encoder_files(opened: Opened) -> None:
    """Refuses an encoder that is not whole, or more than one; of a hub model its weights are left out.

    Raises:
        DataError: with the fault and its cure.
    """
    opened.sentences.check_trained()
    if not opened.commit:
        read_weights(opened.folder)


def check_fits(
    init_from: str, family: Family, values: dict[str, Any], vocab_size: int, max_positions: int, pad_id: int
) -> None:
    """Refuses a folder that the run cannot continue; `values` are its config's, the rest is the run's.

    Args:
        vocab_size: ids of the run's tokenizer that the folder must have rows for.

    Raises:
        ConfigError: saying what does not fit and what to change.
    """
    table, room, pad = values["vocab_size"], family.max_length(values), values["pad_token_id"]
    refusals = [
        (values["is_decoder"], "is a decoder; only encoders can be continued"),
        (bool(misfit := family.incompatible(values)), misfit),
        (
            not values["tie_word_embeddings"] and not family.may_be_untied,
            "has an output table of its own; it must be tied to the input table",
        ),
        (
            vocab_size > table,
            f"has {table} word embeddings, the run's tokenizer {vocab_size} ids; "
            "set data.tokenizer to {kind: folder, path: (the same folder)}",
        ),
        (
            max_positions > room,
            f"has {room} positions, data.max_seq_length is {max_positions}; lower data.max_seq_length",
        ),
        (
            family.counts_from_padding and pad is not None and pad != pad_id,
            f"pads with id {pad}, the run's tokenizer with {pad_id}; "
            "set data.tokenizer to {kind: folder, path: (the same folder)}",
        ),
    ]
    for wrong, sentence in refusals:
        if wrong:
            raise ConfigError(f"model.init_from: {init_from} {sentence}.")


def check_tokenizer(init_from: str, tokenizer_folder: Path, new: Collection[int] = ()) -> None:
    """Refuses a folder whose own tokenizer gives other ids than the run's; one that holds no tokenizer passes.

    Args:
        new: ids that the run's tokenizer has on top of the folder's.

    Raises:
        ConfigError: naming the first id that means two things.
    """
    from transformers import AutoTokenizer

    pieces: list[dict[int, str]] = []
    for folder in (encoder_folder(init_from), tokenizer_folder):
        if not any((folder / name).is_file() for name in TOKENIZERS):
            return  # AutoTokenizer would invent one of five special tokens
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        except (OSError, ValueError):
            return
        pieces.append({identity: piece for piece, identity in tokenizer.get_vocab().items()})
    theirs, ours = pieces
    for identity, piece in sorted(ours.items()):
        other = theirs.get(identity)
        if other != piece and not (other is None and identity in new):
            raise ConfigError(
                f"model.init_from: {init_from} was trained with another tokenizer (id {identity} is {other!r} there, "
                f"{piece!r} in this run); set data.tokenizer to {{kind: folder, path: {init_from}}}."
            )
