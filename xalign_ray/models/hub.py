"""Hub models by name and revision, `organisation/model@revision`: whether they can be had, and where they are."""

from __future__ import annotations

from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from xalign_ray.errors import DataError

TIMEOUT_S = 10.0
FILES = ["*.json", "*.safetensors", "*.bin", "*.model", "*.txt", "*/config.json"]  # not ONNX, TensorFlow, Flax


def revision_of(name: str) -> tuple[str, dict[str, Any]]:
    """A model's folder or hub id, and what the hub's client is given beside it: the revision, if one is named.

    Example: `intfloat/multilingual-e5-small@fd1525a` is `("intfloat/multilingual-e5-small", {"revision": "fd1525a"})`.
    """
    hub_id, at, revision = name.rpartition("@")
    if not at or not hub_id or not revision or Path(name).is_dir():
        return name, {}
    return hub_id, {"revision": revision}


def check_reachable(name: str) -> None:
    """Refuses a hub model that this machine's cache lacks, if the hub does not know it or there is no network.

    Asks once: the hub's own client repeats for most of a minute what a missing network answers at once. A hub that is
    slow or busy is left to that client.

    Raises:
        DataError: it cannot be fetched; what to do.
    """
    from huggingface_hub import constants, try_to_load_from_cache

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


@lru_cache
def hub_status(name: str) -> int | None:
    """The HTTP status of the hub's answer for a model's config.json, by one request; None without a network.

    A hub that does not answer in time counts as 408, Request Timeout.
    """
    from huggingface_hub import constants, get_token

    if constants.is_offline_mode():
        return None
    hub_id, options = revision_of(name)
    url = f"{constants.ENDPOINT}/{quote(hub_id)}/resolve/{quote(options.get('revision', 'main'), safe='')}/config.json"
    token = get_token()
    request = Request(url, method="HEAD", headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urlopen(request, timeout=TIMEOUT_S) as answer:
            return answer.status
    except HTTPError as error:
        return error.code
    except OSError as error:
        timed_out = isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError)
        return int(HTTPStatus.REQUEST_TIMEOUT) if timed_out else None


@lru_cache
def snapshot(hub_id: str, revision: str) -> str:
    """The folder of a revision in the hub's cache, fetched if need be.

    Raises:
        DataError: there is no such model or revision, or the hub cannot be reached.
    """
    from huggingface_hub import snapshot_download

    try:
        return snapshot_download(hub_id, revision=revision, allow_patterns=FILES)
    except Exception as error:  # the hub's errors and those of its transport have no class in common
        reason = str(error).strip().splitlines()[0]
        raise DataError(f"{hub_id}@{revision} cannot be fetched from the hub: {reason}") from None
