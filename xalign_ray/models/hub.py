"""Hub models by name and revision: whether they can be had, and where they are; opened from this machine's cache."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from xalign_ray.config.explain import suggest_path
from xalign_ray.errors import DataError
from xalign_ray.models.weight_files import CONFIG, WEIGHTS
from xalign_ray.private.transformers import small_file
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import RUN_OF, is_folder_name

TIMEOUT_S = 10.0
_COMMIT = re.compile("[0-9a-f]{40}")
FILES = ["*.json", "*.safetensors", "*.bin", "*.model", "*.txt", "*/config.json"]  # not ONNX, TensorFlow, Flax


def revision_of(name: str) -> tuple[str, dict[str, Any]]:
    """A model's folder or hub id, and further arguments of the hub's client: the revision, if one is named.

    Example: `intfloat/multilingual-e5-small@fd1525a` is `("intfloat/multilingual-e5-small", {"revision": "fd1525a"})`.
    """
    hub_id, at, revision = name.rpartition("@")
    if not at or not hub_id or not revision or Path(name).is_dir():
        return name, {}
    return hub_id, {"revision": revision}


def check_reachable(name: str) -> None:
    """Refuses a hub model that this machine's cache lacks, if the hub does not know it or there is no network.

    A name that can only be a folder is refused without a request. One request: the hub's own client repeats it for
    most of a minute where there is no network. A hub that is slow or busy is left to that client.

    Raises:
        DataError: it cannot be fetched; what to do.
    """
    from huggingface_hub import constants, try_to_load_from_cache

    if is_folder_name(name):
        near = suggest_path(Path(name))
        raise DataError(f"{name} is not a folder; give an export folder or a hub id such as bert-base-cased.{near}")
    hub_id, options = revision_of(name)
    if isinstance(try_to_load_from_cache(hub_id, "config.json", **options), str):
        return
    by_hand = "Without a network, copy its files into a folder and name that"
    if constants.is_offline_mode():
        raise DataError(f"{name} is no folder and not in the hub's cache, and HF_HUB_OFFLINE is set. {by_hand}.")
    status = hub_status(name)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
        raise DataError(
            f"{name} is no folder, and the hub has no such model for you (HTTP {status}). Check its name and "
            "revision, or log in (`hf auth login`) if it is private or gated."
        )
    if status is None:
        raise DataError(f"{name} is no folder, and {constants.ENDPOINT} cannot be reached. {by_hand}.")


def at_commit(name: str) -> str:
    """A hub model as NAME@COMMIT: the commit that the cache holds, else the newest one of the hub.

    A folder, a recipe's run, and a model that neither has keep their name.
    """
    if Path(name).is_dir() or is_folder_name(name) or name.startswith(RUN_OF):
        return name
    hub_id, options = revision_of(name)
    if _COMMIT.fullmatch(options.get("revision", "")):
        return name
    folder = in_cache(name)
    commit = _ask_hub(name)[1] if folder == name else Path(folder).name
    return f"{hub_id}@{commit}" if commit else name


def hub_status(name: str) -> int | None:
    """The HTTP status of the hub's answer for a model's config.json, by one request; None without a network.

    A hub that does not answer in time counts as 408, Request Timeout.
    """
    return _ask_hub(name)[0]


@lru_cache
def _ask_hub(name: str) -> tuple[int | None, str]:
    """The status of the hub's answer, and the commit that it names."""
    from huggingface_hub import constants, get_token

    if constants.is_offline_mode():
        return None, ""
    hub_id, options = revision_of(name)
    url = f"{constants.ENDPOINT}/{quote(hub_id)}/resolve/{quote(options.get('revision', 'main'), safe='')}/config.json"
    token = get_token()
    request = Request(url, method="HEAD", headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urlopen(request, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.headers.get(constants.HUGGINGFACE_HEADER_X_REPO_COMMIT, "")
    except HTTPError as error:
        return error.code, ""
    except OSError as error:
        timed_out = isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError)
        return int(HTTPStatus.REQUEST_TIMEOUT) if timed_out else None, ""


def check_hub(name: str) -> None:
    """As `check_reachable`, of a name that is no folder and that this machine's cache does not hold whole."""
    if not Path(name).is_dir() and in_cache(name) == name:
        check_reachable(name)


@lru_cache
def snapshot(hub_id: str, revision: str) -> str:
    """The folder of a revision in the hub's cache, fetched if need be.

    Raises:
        DataError: there is no such model or revision, or the hub cannot be reached.
    """
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(hub_id, revision=revision, allow_patterns=FILES, ignore_patterns="*.bin")
        if any(Path(folder).glob("*.safetensors")):
            return folder
        return snapshot_download(hub_id, revision=revision, allow_patterns=FILES)
    except Exception as error:  # the hub and its transport have no common class of errors
        reason = str(error).strip().splitlines()[0]
        raise DataError(f"{hub_id}@{revision} cannot be fetched from the hub: {reason}") from None


# Opens hub models from this machine's cache where it holds them whole: the hub is not asked, and need not answer.

TOKENIZERS = ("tokenizer.json", "vocab.txt", "sentencepiece.bpe.model", "vocab.json")


def in_cache(name: str) -> str:
    """The folder in the cache of a hub model that is whole there, with its tokenizer; else the name.

    A revision, `organisation/model@revision`, is fetched into the cache first unless it is a commit that is there.

    Raises:
        DataError: a revision cannot be fetched.
    """
    if Path(name).is_dir() or is_folder_name(name):
        return name
    hub_id, options = revision_of(name)
    if options and not (_COMMIT.fullmatch(options["revision"]) and _whole_in_cache(name)):
        return snapshot(hub_id, options["revision"])
    return _whole_in_cache(name) or name


def _whole_in_cache(name: str) -> str:
    """The folder of a model in the cache; empty where a file of it may lack."""
    config = cached_file(name, CONFIG)
    if config is None or not any(cached_file(name, file) for file in TOKENIZERS):
        return ""
    weights = next((found for file in WEIGHTS if (found := cached_file(name, file))), None)
    if weights is None:
        return ""
    if weights.suffix == ".json":
        shards = {*json.loads(weights.read_bytes())["weight_map"].values()}
        if not all(cached_file(name, shard) for shard in shards):
            return ""
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
    if found is not None:  # the hub has answered before that there is none
        return None
    if hub_status(name) in (None, HTTPStatus.REQUEST_TIMEOUT):
        say(f"{name}: {file} is not in the cache, and the hub does not answer. The model is taken to have none.")
        return None
    path = small_file(name, file)
    return Path(path) if path else None


def cached_file(name: str, file: str) -> Path | None:
    """A file of a folder, or of a hub model in this machine's cache; None where it is not there. Asks no hub."""
    if Path(name).is_dir():
        return Path(name, file) if Path(name, file).is_file() else None
    from huggingface_hub import try_to_load_from_cache

    hub_id, options = revision_of(name)
    found = try_to_load_from_cache(hub_id, file, **options)
    return Path(found) if isinstance(found, str) else None
