"""Refuses an encoder that cannot be continued by its files alone: about a second, without torch or transformers."""

from __future__ import annotations

import pickletools
import zipfile
from pathlib import Path

from xalign_ray.config.choices import ContrastedPairs
from xalign_ray.config.schema import RUN_OF, RunConfig
from xalign_ray.config.sources import FolderTokenizer, StartTokenizer
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.models.hub import check_reachable
from xalign_ray.models.known import encoder_values, vocabulary_size
from xalign_ray.models.own_tokenizer import check_files, check_vocabulary
from xalign_ray.models.sentence_modules import check_modules
from xalign_ray.models.weight_files import WEIGHTS, check_weight_files, weight_names
from xalign_ray.work.artifacts import read_json

WRAPPED = {  # what wrappers of torch put before the names of a model's weights, and how to save without
    "module.": "as DataParallel saves them: save `model.module` instead",
    "_orig_mod.": "as torch.compile saves them: save `model._orig_mod` instead",
}
_OF_TENSORS = ("torch", "collections", "numpy", "_codecs")  # modules whose objects a pickle of tensors may name
_WITHOUT_A_MASK = (None, "PreTrainedTokenizerFast", "TokenizersBackend")  # classes that have no mask token by default


def has_weights(start: str | None) -> bool:
    """Whether an encoder is a folder with weights; a plan needs its config.json alone."""
    return start is not None and any((Path(start) / file).is_file() for file in WEIGHTS)


def check_start(config: RunConfig) -> None:
    """Refuses the encoder that a recipe names for what its files, or the lack of a network, say of it.

    Raises:
        ConfigError: it is not there, not whole, of another kind, or does not fit its tokenizer; what to do.
    """
    start = config.model.init_from
    if start is None or start.startswith(RUN_OF):
        return
    values = encoder_values(start)
    try:
        check_encoder_files(start)
        if not Path(start).is_dir():
            return
        tokenizer = config.data.tokenizer
        own = isinstance(tokenizer, FolderTokenizer) and Path(tokenizer.path) == Path(start)
        if values and (own or isinstance(tokenizer, StartTokenizer)):
            _check_tokenizer(config, start, values["vocab_size"])
    except DataError as error:
        raise ConfigError(f"model.init_from: {error}") from None


def check_encoder_files(start: str) -> None:
    """Refuses a folder that holds no whole encoder, or more than one; a hub id that cannot be fetched.

    Raises:
        DataError: what is wrong, and what to do.
    """
    if not Path(start).is_dir():
        check_reachable(start)
        return
    check_modules(start)
    check_weight_files(start)
    for path in sorted(Path(start).glob("*.bin")):
        _check_pickle(path)
    _check_names(start)


def _check_names(start: str) -> None:
    names = weight_names(start) or set()
    for prefix, why in WRAPPED.items():
        if wrapped := [name for name in names if name.startswith(prefix)]:
            raise DataError(f"{start}: {len(wrapped)} names of its weights begin with '{prefix}', {why}.")


def _check_pickle(path: Path) -> None:
    """Refuses what torch saved if it is cut short, or names objects that are no tensors: it could run any code."""
    with path.open("rb") as file:
        is_archive = file.read(2) == b"PK"
    if not is_archive:
        return  # of versions before 1.6; judged when it is opened
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith("data.pkl"))
            steps = list(pickletools.genops(archive.read(name)))
    except (zipfile.BadZipFile, ValueError):
        raise DataError(f"{path} is not whole. Copy or download it again.") from None
    named = [str(argument) for opcode, argument, _ in steps if opcode.name == "GLOBAL"]
    other = [name for name in named if name.split(" ")[0].split(".")[0] not in _OF_TENSORS]
    if other:
        raise DataError(
            f"{path} is a pickle of more than tensors ({other[0].replace(' ', '.')}), and could run any code. Save "
            "it as safetensors first, if you know who made it."
        )


def _check_tokenizer(config: RunConfig, start: str, rows: int) -> None:
    """Refuses a tokenizer that is missing, has ids beyond the embeddings, or lacks a mask that a stream needs."""
    check_files(start, None)
    check_vocabulary(start)
    ids = vocabulary_size(start)
    if ids is not None and ids > rows:
        raise DataError(
            f"{start}: its tokenizer has {ids:,} ids, its config.json {rows:,} embeddings; they do not belong "
            "together. Put the model's own tokenizer.json next to it."
        )
    settings = [
        read_json(path, "It is the tokenizer's own; copy or download it again.")
        for name in ("tokenizer_config.json", "special_tokens_map.json")
        if (path := Path(start) / name).is_file()
    ]
    masking = [one.kind for one in config.all_streams if not (isinstance(one, ContrastedPairs) and one.text == "none")]
    kinds = [one.get("tokenizer_class") for one in settings]
    if masking and not any(one.get("mask_token") for one in settings) and set(kinds) <= set(_WITHOUT_A_MASK):
        raise DataError(
            f"{start} has no mask token, and stream {masking[0]} masks text. Name one of its tokens in "
            'tokenizer_config.json ("mask_token": "<mask>"), or take a stream that masks nothing (contrasted_pairs '
            "with text: none)."
        )
