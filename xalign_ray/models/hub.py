"""Files of a model that is a local folder or a hub model, which may name a revision: `organisation/model@revision`."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def revision_of(name: str) -> tuple[str, dict[str, Any]]:
    """A model's folder or hub id, and what `from_pretrained` is given beside it: the revision, if one is named.

    Example: `intfloat/multilingual-e5-small@fd1525a` is `("intfloat/multilingual-e5-small", {"revision": "fd1525a"})`.
    """
    hub_id, at, revision = name.rpartition("@")
    if not at or not hub_id or not revision or Path(name).is_dir():
        return name, {}
    return hub_id, {"revision": revision}


def model_file(name: str, file: str) -> Path | None:
    """A file of a model on this disk, fetched into the hub's cache if need be; None where the model has none.

    Raises:
        OSError: there is no such hub model, or it cannot be reached.
    """
    if Path(name).is_dir():
        path = Path(name) / file
        return path if path.is_file() else None
    from transformers.utils.hub import cached_file

    hub_id, options = revision_of(name)
    found = cached_file(
        hub_id,
        file,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
        **options,
    )
    return Path(found) if found else None
