"""Hub models by name and revision: whether they can be had, and their folders in this machine's cache."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from xalign_ray.config.explain import suggest_path
from xalign_ray.errors import DataError
from xalign_ray.models.weight_files import CONFIG, has_weights
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import RUN_OF, is_folder_name

TIMEOUT_S = 10.0
_COMMIT = re.compile("[0-9a-f]{40}")
SMALL = ("*.json", "*.model", "*.txt", "*_Dense/*", "*_LayerNorm/*")  # all but weights of the encoder
TOKENIZERS = ("tokenizer.json", "vocab.txt", "sentencepiece.bpe.model", "vocab.json")
MODULES = "modules.json"  # of Sentence Transformers


def revision_of(name: str) -> tuple[str, dict[str, Any]]:
    """A model's folder or hub id, and further arguments of the hub's client: the revision, if one is named.

    Example: `intfloat/multilingual-e5-small@fd1525a` is `("intfloat/multilingual-e5-small", {"revision": "fd1525a"})`.
    """
    hub_id, at, revision = name.rpartition("@")
    if not at or not hub_id or not revision or Path(name).is_dir():
        return name, {}
    return hub_id, {"revision": revision}


def check_reachable(name: str) -> None:
    """Refuses a model that the hub does not know, or that cannot be fetched without a network.

    A name that can only be a folder is refused without a request. One request: the hub's own client repeats it for
    most of a minute where there is no network. A hub that is slow or busy is left to that client.

    Raises:
        DataError: it cannot be fetched; what to do.
    """
    from huggingface_hub import constants

    if is_folder_name(name):
        near = suggest_path(Path(name))
        raise DataError(f"{name} is not a folder; give an export folder or a hub id such as bert-base-cased.{near}")
    by_hand = "Without a network, copy its files into a folder and name that"
    if constants.is_offline_mode():
        raise DataError(f"{name} is no folder and not in the hub's cache, and HF_HUB_OFFLINE is set. {by_hand}.")
    status = ask_hub(name)[0]
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
    folder = _cached(name)
    commit = ask_hub(name)[1] if folder is None else folder.name
    return f"{hub_id}@{commit}" if commit else name


@lru_cache
def ask_hub(name: str) -> tuple[int | None, str]:
    """Asks the hub for a model's config.json by one request.

    Returns:
        The HTTP status of its answer, None without a network, 408 (Request Timeout) where it does not answer in time;
        and the commit that it names.
    """
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


def encoder_folder(name: str) -> Path:
    """The folder of a model; of a hub model that of its commit in this machine's cache, with its small files.

    The hub is not asked where the cache has them. Weights are left to `fetch_weights`.

    Raises:
        DataError: there is no such folder or model, or the hub cannot be reached.
    """
    if Path(name).is_dir():
        return Path(name)
    folder = None if is_folder_name(name) else _cached(name)
    if folder is not None:
        has_all = (folder / CONFIG).is_file() and any((folder / file).is_file() for file in TOKENIZERS)
        listed = _looked_for(name, MODULES)
        if has_all and listed:
            return folder
        if ask_hub(name)[0] in (None, HTTPStatus.REQUEST_TIMEOUT):
            if not listed:
                say(f"{name}: {MODULES} is not in the cache, and the hub does not answer; none is read.")
            return folder
    check_reachable(name)
    return _download(name, SMALL)


def fetch_weights(name: str) -> Path:
    """As `encoder_folder`, with the weights of a hub model: safetensors, or where it has none pickles.

    Raises:
        DataError: the hub cannot be reached.
    """
    folder = encoder_folder(name)
    if Path(name).is_dir() or has_weights(folder):
        return folder
    check_reachable(name)
    at = f"{revision_of(name)[0]}@{folder.name}"
    _download(at, ["*.safetensors"])
    return folder if has_weights(folder) else _download(at, ["*.bin"])


def commit_of(folder: Path) -> str:
    """The commit of a folder of the hub's cache; empty of others."""
    return folder.name if folder.parent.name == "snapshots" else ""


def _cached(name: str) -> Path | None:
    """The folder of a model in this machine's cache, with at least one of its files."""
    paths = (_looked_for(name, file) for file in (CONFIG, *TOKENIZERS))
    return next((Path(path).parent for path in paths if isinstance(path, str)), None)


def _looked_for(name: str, file: str) -> Any:
    """The path of a file in the cache; another true value where the hub has answered before that there is none."""
    from huggingface_hub import try_to_load_from_cache

    hub_id, options = revision_of(name)
    return try_to_load_from_cache(hub_id, file, **options)


def _download(name: str, patterns: Sequence[str]) -> Path:
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import EntryNotFoundError

    hub_id, options = revision_of(name)
    try:
        folder = Path(snapshot_download(hub_id, allow_patterns=[*patterns], **options))
        if not _looked_for(f"{hub_id}@{folder.name}", MODULES):
            with suppress(EntryNotFoundError):  # the cache remembers that there is none
                hf_hub_download(hub_id, MODULES, revision=folder.name)
    except Exception as error:  # the hub and its transport have no common class of errors
        reason = str(error).strip().splitlines()[0]
        raise DataError(f"{name} cannot be fetched from the hub: {reason}") from None
    return folder
