"""Folders that are whole or do not exist: atomic writes, hashes, and a manifest that is written last."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from xalign_ray.errors import DataError

MANIFEST = "manifest.json"


def write_atomic(path: Path, content: bytes | str) -> None:
    """Writes a file under a temporary name and renames it into place, so that a reader sees all of it or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content.encode() if isinstance(content, str) else content)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Writes JSON atomically, keys sorted, so that equal values are equal files."""
    write_atomic(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_value(value: Any) -> str:
    """SHA-256 of a JSON value in canonical form: the fingerprint of a configuration."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_json(path: Path, cure: str, *keys: str) -> Any:
    """The value of a JSON file that this program wrote; with `keys`, an object that has them.

    Raises:
        DataError: it is missing, or torn, empty or changed; names the file and says `cure`.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path} is missing. {cure}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged: it is not JSON ({error}). {cure}") from None
    if missing := [key for key in keys if not isinstance(value, dict) or key not in value]:
        raise DataError(f"{path} is damaged: it lacks {', '.join(missing)}. {cure}")
    return value


def read_manifest(folder: Path, *keys: str) -> dict[str, Any] | None:
    """The manifest of a finished folder, or None: a folder without a manifest does not exist.

    Raises:
        DataError: it is damaged, or lacks one of the keys.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return None
    value = read_json(path, f"Remove it and give the command that made {folder} again.", *keys)
    if not isinstance(value, dict):
        raise DataError(f"{path} is damaged: it is no manifest. Remove it and make {folder} again.")
    return value


def whole_json(path: Path, *keys: str) -> dict[str, Any] | None:
    """The object in a JSON file, None where it is missing or damaged: for the verb that can write it again."""
    try:
        value = read_json(path, "", *keys)
    except DataError:
        return None
    return value if isinstance(value, dict) else None


def whole_manifest(folder: Path, *keys: str) -> dict[str, Any] | None:
    """The manifest of a folder, as `whole_json` reads it."""
    return whole_json(folder / MANIFEST, *keys)


def finished_run(folder: Path) -> dict[str, Any] | None:
    """The manifest of a run folder that `pretrain` finished; None if it did not, or where the manifest is damaged."""
    return whole_manifest(folder, "recipe", "fingerprint", "steps")


def write_manifest(folder: Path, fields: dict[str, Any]) -> None:
    """Declares a folder finished; call it after everything else in the folder is on disk."""
    write_json(folder / MANIFEST, fields)


def check_file(path: Path, expected_hash: str, cure: str) -> None:
    """Raises DataError naming the file if it is missing or its bytes are not those that were written."""
    if not path.is_file():
        raise DataError(f"{path} is missing. {cure}")
    if (found := hash_file(path)) != expected_hash:
        raise DataError(
            f"{path} is damaged: its SHA-256 is {found[:12]}, the manifest says {expected_hash[:12]}. {cure}"
        )
