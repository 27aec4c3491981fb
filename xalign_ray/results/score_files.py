"""Reads and writes scores.json: score records and their hash, so that a changed number is never reported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xalign_ray.errors import DataError
from xalign_ray.work.artifacts import hash_value, write_json
from xalign_ray.work.file_checks import read_plain

Record = dict[str, Any]


def write_records(path: Path, records: Sequence[Record]) -> None:
    """Writes scores.json atomically: `{"scores": [...], "sha256": ...}`, the hash being that of the records."""
    write_json(path, {"scores": list(records), "sha256": hash_value(list(records))})


def read_records(path: Path) -> list[Record]:
    """The records of a scores.json; one of an earlier version has no hash and is taken as it is.

    Raises:
        DataError: the file is missing, holds no scores, or was changed after it was written.
    """
    try:
        content = json.loads(read_plain(path))
        records, expected = content["scores"], content.get("sha256")
        if not all(isinstance(record, dict) for record in records):
            raise TypeError("a score must be an object")
    except FileNotFoundError:
        raise DataError(f"{path} is missing: this evaluation has not finished; run it again.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not a file of scores ({error}); delete it and evaluate again.") from error
    if expected is not None and (found := hash_value(records)) != expected:
        raise DataError(
            f"{path} is damaged: the SHA-256 of its scores is {found[:12]}, the file says {str(expected)[:12]}. Delete "
            "it and evaluate again."
        )
    return records
