"""Opens hub models from this machine's cache where it holds them whole: the hub is not asked, and need not answer."""

from __future__ import annotations

import json
from http import HTTPStatus
from pathlib import Path

from xalign_ray.models.hub import hub_status, revision_of, snapshot
from xalign_ray.models.weight_files import CONFIG, WEIGHTS
from xalign_ray.private.transformers import small_file
from xalign_ray.work.local_paths import is_folder_name
from xalign_ray.work.status_line import say

TOKENIZERS = ("tokenizer.json", "vocab.txt", "sentencepiece.bpe.model", "vocab.json")


def in_cache(name: str) -> str:
    """The folder in the cache of a hub model that is whole there, with its tokenizer; else the name as it is.

    A revision, `organisation/model@revision`, is fetched into the cache first.

    Raises:
        DataError: a revision cannot be fetched.
    """
    if Path(name).is_dir() or is_folder_name(name):
        return name
    hub_id, options = revision_of(name)
    if options:
        return snapshot(hub_id, options["revision"])
    config = _find(name, CONFIG)
    if config is None or not any(_find(name, file) for file in TOKENIZERS):
        return name
    weights = next((found for file in WEIGHTS if (found := _find(name, file))), None)
    if weights is None:
        return name
    if weights.suffix == ".json":
        shards = {*json.loads(weights.read_bytes())["weight_map"].values()}
        if not all(_find(name, shard) for shard in shards):
            return name
    return str(config.parent)


def hub_file(name: str, file: str) -> Path | None:
    """A small file of a folder or hub model, from the cache where it is there; None where the model has none.

    A hub that does not answer counts as having none, and this is reported.
    """
    if revision_of(name)[1]:
        name = in_cache(name)
    if Path(name).is_dir():
        return Path(name, file) if Path(name, file).is_file() else None
    from huggingface_hub import try_to_load_from_cache

    if isinstance(found := try_to_load_from_cache(name, file), str):
        return Path(found)
    if found is not None:  # the hub said once that there is none
        return None
    if hub_status(name) in (None, HTTPStatus.REQUEST_TIMEOUT):
        say(f"{name}: {file} is not in the cache, and the hub does not answer. The model is taken to have none.")
        return None
    path = small_file(name, file)
    return Path(path) if path else None


def _find(name: str, file: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, file)
    return Path(found) if isinstance(found, str) else None
