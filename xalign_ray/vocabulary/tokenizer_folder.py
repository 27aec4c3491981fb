"""The run's tokenizer as a Hugging Face folder: wrapped, opened, saved; transformers is imported late."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer

from xalign_ray.config import sources
from xalign_ray.config.choices import ContrastedPairs
from xalign_ray.config.explain import suggest_path
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.models.own_tokenizer import read_tokenizer
from xalign_ray.streams.collate import Vocabulary
from xalign_ray.vocabulary.tokenizer import RARE, frame_of, put_frame
from xalign_ray.work.storage import is_folder_name

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SPECIAL = ("pad", "unk", "cls", "sep", "mask")
FALLBACKS = {"cls": "bos", "sep": "eos", "pad": "eos"}  # what stands for a token that decoders' tokenizers lack
_UNUSED = ("[unused", "<unused")  # what pieces are called that no text has, of BERT's and of Gemma's kind
ABSENT = -1  # the id of an unknown piece, or of a mask, that a tokenizer does not have


def wrap_tokenizer(trained: Tokenizer, like: PreTrainedTokenizerFast | None = None) -> PreTrainedTokenizerFast:
    """A tokenizer that we trained or extended, as transformers knows it; its special tokens are named as in `like`."""
    from transformers import PreTrainedTokenizerFast

    names = {f"{name}_token": getattr(like, f"{name}_token") if like else f"[{name.upper()}]" for name in SPECIAL}
    names = {name: token for name, token in names.items() if token is not None}
    return PreTrainedTokenizerFast(tokenizer_object=trained, **names)


def open_tokenizer(path: str) -> PreTrainedTokenizerFast:
    """A given fast tokenizer, from a folder or the hub, with the tokens of FALLBACKS in place.

    It may lack an unknown piece, as byte-level tokenizers do, and a mask: see `check_mask`. One that puts one token
    behind a text and none before it, as of Qwen3-Embedding, has no `cls` if it names none, and that token as its `sep`.

    Raises:
        ConfigError: if it is not there, not fast, lacks a token that every row needs, or fails at unknown characters.
    """
    where = f"data.tokenizer.path '{path}'"
    if is_folder_name(path) and not Path(path).is_dir():
        raise ConfigError(f"data.tokenizer.path: there is no folder '{path}'.{suggest_path(Path(path))}")
    try:
        tokenizer = read_tokenizer(path)
    except DataError as error:
        raise ConfigError(f"data.tokenizer.path: {error}") from None
    except Exception as error:  # of a foreign file: what its readers raise has no class in common
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfigError(f"{where} holds no tokenizer: {lines[0]}") from None
    if not getattr(tokenizer, "is_fast", False):
        raise ConfigError(f"{where} is a slow tokenizer; save it with a tokenizer.json first.")
    for name, other in FALLBACKS.items():
        if getattr(tokenizer, f"{name}_token_id") is None and getattr(tokenizer, f"{other}_token_id") is not None:
            setattr(tokenizer, f"{name}_token", getattr(tokenizer, f"{other}_token"))
    missing = [name for name in FALLBACKS if getattr(tokenizer, f"{name}_token_id") is None]
    if missing == ["cls"]:
        before, behind = frame_of(tokenizer.backend_tokenizer)
        if not before and len(behind) == 1:
            missing, tokenizer.sep_token = [], tokenizer.convert_ids_to_tokens(behind[0])
    if missing:
        lacking = ", ".join(f"{name} (nor {FALLBACKS[name]})" for name in missing)
        raise ConfigError(f"{where} has no {lacking} token; every row needs them. Name them in tokenizer_config.json.")
    try:
        tokenizer.backend_tokenizer.encode(RARE, add_special_tokens=False)
    except Exception:  # tokenizers raises bare Exceptions
        raise ConfigError(
            f"{where} has no piece for characters that it does not know, and cannot read any of them. Give its "
            "vocabulary an unknown piece, and name it in tokenizer.json (unk_token, or unk_id of a unigram model)."
        ) from None
    return tokenizer


def check_mask(tokenizer: PreTrainedTokenizerFast, config: RunConfig) -> None:
    """Refuses a tokenizer without a mask token, or a first one, where a stream masks text.

    Raises:
        ConfigError: with the stream, and what to set.
    """
    masking = [
        stream.kind for stream in config.streams if not (isinstance(stream, ContrastedPairs) and stream.text == "none")
    ]
    lacking = next((name for name in ("mask", "cls") if getattr(tokenizer, f"{name}_token_id") is None), "")
    if masking and lacking:
        raise ConfigError(
            f"data.tokenizer.path '{tokenizer.name_or_path}' has no {lacking} token, and stream {masking[0]} masks "
            f'text. Name one of its tokens in tokenizer_config.json ("{lacking}_token": "<{lacking}>"), or take a '
            "stream that masks nothing (contrasted_pairs with text: none)."
        )


def framed(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The tokenizer with `[CLS] text [SEP]` as its template, which is what rows of training have; `text [SEP]` stays.

    One without a template, or with another, would give every user of the export inputs that were not trained on.
    """
    backend = tokenizer.backend_tokenizer
    if tokenizer.cls_token is None:
        return tokenizer
    before = frame_of(backend)
    if not put_frame(backend, str(tokenizer.cls_token), str(tokenizer.sep_token)):
        return tokenizer
    begin, end = ([str(backend.id_to_token(number)) for number in part] for part in before)
    shown = " ".join([*begin, "text", *end])
    sys.stderr.write(
        f"prepare: the given tokenizer makes `{shown}` of a text; rows of training are `{tokenizer.cls_token} text "
        f"{tokenizer.sep_token}`, and so is what the export's tokenizer makes.\n"
    )
    return wrap_tokenizer(backend, like=tokenizer)


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Writes tokenizer.json and its configuration, as transformers reads them."""
    tokenizer.save_pretrained(str(folder))
    assert (folder / "tokenizer.json").is_file(), "a fast tokenizer saves its tokenizer.json"


def vocabulary(tokenizer: PreTrainedTokenizerFast) -> Vocabulary:
    """The special ids (ABSENT for those it lacks), and the pieces that may stand at random places.

    These are all but the special ones, also those that only tokenizer.json calls so, and the unused ones.
    """
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder()
    special = {*tokenizer.all_special_ids, *(number for number, token in added.items() if token.special)}
    tokens = tokenizer.get_vocab()
    regular = sorted(i for token, i in tokens.items() if i not in special and not token.startswith(_UNUSED))
    ids = (getattr(tokenizer, f"{name}_token_id") for name in ("pad", "cls", "sep", "mask", "unk"))
    return Vocabulary(
        *(ABSENT if number is None else int(number) for number in ids), regular=np.asarray(regular, np.int32)
    )


def given_folder(tokenizer: sources.Tokenizer) -> sources.FolderTokenizer:
    """The settings of a tokenizer that is given and not trained."""
    assert isinstance(tokenizer, sources.FolderTokenizer), "the recipe has been settled where a run starts"
    return tokenizer
