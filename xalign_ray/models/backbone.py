"""Says which encoder a recipe means, as the values of its config.json, without importing torch."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from xalign_ray.config.schema import ModelConfig
from xalign_ray.errors import ConfigError
from xalign_ray.models.families import FAMILIES, check_settings, family_of
from xalign_ray.models.family import Family
from xalign_ray.models.hub import in_cache
from xalign_ray.models.known import read_folder
from xalign_ray.work.artifacts import read_json


def backbone(model: ModelConfig, vocab_size: int, max_positions: int, pad_id: int) -> tuple[Family, dict[str, Any]]:
    """The encoder's family and the values of its config: the recipe's, or those of the folder that it continues.

    Args:
        model: the recipe's `model` block; dropout, if it is given, holds for a continued folder too, family and sizes
            do not.
        vocab_size: ids of the run's tokenizer; of use from scratch only, as are the next two.
        max_positions: the longest row, in tokens.
        pad_id: the run's padding id.

    Raises:
        ConfigError: when `model.init_from` cannot be found, is none of the families, or one that cannot do the rest.
    """
    if model.init_from is None:
        family = FAMILIES[model.family]
        values = family.values(model, vocab_size, max_positions, pad_id)
    else:
        found = _read_config(model.init_from)
        family = family_of(model.init_from, found)
        values = dict(family.defaults) | found
    check_settings(family, model)
    return family, family.with_dropout(values, model)


def _read_config(init_from: str) -> dict[str, Any]:
    if Path(folder := in_cache(init_from)).is_dir():
        return read_folder(folder)
    return read_json(_fetch_config(init_from), "It is the model that model.init_from names.", "model_type")


def _fetch_config(hub_id: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(hf_hub_download(hub_id, "config.json"))
    except (OSError, ValueError, HfHubHTTPError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"model.init_from '{hub_id}' is neither a folder nor a hub model that can be reached ({reason})."
        ) from None


def check_fits(
    init_from: str, family: Family, values: dict[str, Any], vocab_size: int, max_positions: int, pad_id: int
) -> None:
    """Refuses a folder that the run cannot continue; `values` are its config's, the rest is the run's.

    Args:
        vocab_size: ids of the run's tokenizer that the folder must have rows for.

    Raises:
        ConfigError: saying what does not fit and what to change.
    """
    table, room, pad = values["vocab_size"], family.room(values), values["pad_token_id"]
    refusals = [
        (values["is_decoder"], "is a decoder; only encoders can be continued"),
        (bool(misfit := family.misfit(values)), misfit),
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
    theirs, ours = _read_vocabulary(init_from), _read_vocabulary(str(tokenizer_folder))
    if theirs is None or ours is None:
        return
    for identity, piece in sorted(ours.items()):
        other = theirs.get(identity)
        if other != piece and not (other is None and identity in new):
            raise ConfigError(
                f"model.init_from: {init_from} was trained with another tokenizer (id {identity} is {other!r} there, "
                f"{piece!r} in this run); set data.tokenizer to {{kind: folder, path: {init_from}}}."
            )


def _read_vocabulary(folder_or_id: str) -> dict[int, str] | None:
    from transformers import AutoTokenizer

    folder = Path(folder_or_id)
    if folder.is_dir() and not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        return None  # AutoTokenizer would invent one of five special tokens
    try:
        tokenizer = AutoTokenizer.from_pretrained(in_cache(folder_or_id), trust_remote_code=False)
    except (OSError, ValueError):
        return None
    return {identity: piece for piece, identity in tokenizer.get_vocab().items()}
