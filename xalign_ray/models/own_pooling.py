"""Pooling and prompt that an encoder is made for, as its Sentence Transformers files say."""

from __future__ import annotations

import json
from typing import Any

from xalign_ray.errors import DataError
from xalign_ray.models.hub_cache import hub_file
from xalign_ray.work.status_line import say

_MODULES = "modules.json"
_KNOWN = {"Transformer", "Pooling", "Normalize", "Dense"}
_PROMPTS = "config_sentence_transformers.json"
_LENGTH = "sentence_bert_config.json"
QUERY = "query"  # name of the prompt that is taken where none is the default


def own_pooling(encoder: str) -> str | None:
    """How the encoder's last layer becomes a sentence vector: "mean" or "cls"; None where no files say so.

    `modules.json` names the folder of the pooling module, whose config.json names the kind. Another kind is reported on
    stderr, and counts as none. So are modules that change the vectors further in a way that is unknown here.

    Args:
        encoder: folder or hub id.

    Raises:
        DataError: the files are damaged.
    """
    modules = _read(encoder, _MODULES)
    if modules is None:
        return None
    try:
        folder = next((one["path"] for one in modules if one["type"].endswith("Pooling")), None)
        config = _read(encoder, f"{folder}/config.json") if folder else None
        if config is None:
            return None
        kinds = {"mean": config.get("pooling_mode_mean_tokens"), "cls": config.get("pooling_mode_cls_token")}
        named = config.get("pooling_mode") or [kind for kind, is_set in kinds.items() if is_set]
    except (TypeError, KeyError, AttributeError):
        damaged = f"{_MODULES} or the config.json of its pooling is damaged"
        raise DataError(f"{encoder}: {damaged}; fetch it again.") from None
    others = sorted({one["type"].rpartition(".")[2] for one in modules} - _KNOWN)
    if others or config.get("include_prompt") is False:
        what = f"module {', '.join(others)} changes them" if others else "pooling leaves out the tokens of a prompt"
        say(f"{encoder}: these vectors are not those of Sentence Transformers, whose {what}.")
    found = [named] if isinstance(named, str) else named
    if len(found) == 1 and found[0] in kinds:
        return found[0]
    say(f"{encoder}: its own pooling ({' + '.join(found) or 'neither mean nor cls'}) is unknown and not used.")
    return None


def own_prompt(encoder: str) -> str:
    """What the encoder's files put before a sentence: the default prompt, else the one named "query", else nothing.

    Both sentences of a pair get it: retrieval of translations is a symmetric task.

    Args:
        encoder: folder or hub id.

    Raises:
        DataError: the file is damaged.
    """
    prompts, default = own_prompts(encoder)
    return prompts.get(default or QUERY, "")


def own_prompts(encoder: str) -> tuple[dict[str, str], str | None]:
    """The prompts of the encoder's files by name, and the name of the one that Sentence Transformers takes unasked.

    Raises:
        DataError: the file is damaged.
    """
    config = _read(encoder, _PROMPTS)
    if config is None:
        return {}, None
    damaged = DataError(f"{encoder}: {_PROMPTS} is damaged: its prompts are not texts by name. Fetch it again.")
    try:
        prompts = {name: text or "" for name, text in (config.get("prompts") or {}).items()}
        default = config.get("default_prompt_name")
    except AttributeError:
        raise damaged from None
    if not all(isinstance(text, str) for text in [*prompts.values(), default or ""]):
        raise damaged
    return prompts, default


def own_max_length(encoder: str) -> int | None:
    """Tokens of an input, special ones included, after which the encoder's files cut it; None where they say nothing.

    Raises:
        DataError: the file is damaged.
    """
    config = _read(encoder, _LENGTH)
    try:
        length = None if config is None else config.get("max_seq_length")
        return None if length is None else int(length)
    except (AttributeError, TypeError, ValueError):
        raise DataError(f"{encoder}: {_LENGTH} is damaged: its max_seq_length is no number. Fetch it again.") from None


def is_normalized(encoder: str) -> bool:
    """Whether the encoder's files give each sentence vector length 1.

    Raises:
        DataError: the file is damaged.
    """
    modules = _read(encoder, _MODULES) or []
    try:
        return any(one["type"].endswith("Normalize") for one in modules)
    except (TypeError, KeyError, AttributeError):
        raise DataError(f"{encoder}: {_MODULES} is damaged; fetch it again.") from None


def _read(encoder: str, name: str) -> Any:
    path = hub_file(encoder, name)
    if path is None:
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is damaged: {error}. Fetch it again.") from None
