"""Folders that are whole or do not exist: atomic writes, hashes, sealed archives, a manifest that is written last."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import socket
import stat
import uuid
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from xalign_ray.errors import DataError, written_in
from xalign_ray.work.file_checks import read_plain

MANIFEST = "manifest.json"
LOCK = ".lock"
_SEAL = 64  # hexadecimal digits of an archive's comment
_DATE = (1980, 1, 1, 0, 0, 0)  # of every file of an archive, so that equal files are equal bytes
STUDY_KIND, TRIAL_KIND, EVALUATION_KIND = "study", "tuned", "evaluation"  # kinds of manifests; that of a run has none
HOST = socket.gethostname()


def _identify_machine() -> str:
    """Of the running kernel and its set of process ids, which containers on one host do not share; empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        return hashlib.sha256(f"{boot} {os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:12]
    except OSError:
        return ""


MACHINE = _identify_machine()
_UNFINISHED = re.compile(r"\..*\.(\d+)\.(\d*)@[^@]*@(\w*)\.[0-9a-f]{8}\.unfinished")


def process_start(pid: int) -> str:
    """When a living process began, in ticks: with its id this names it for good. Empty if it is dead or not known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def unfinished(path: Path) -> Path:
    """A temporary name next to a file or folder that no other writer uses; it names the writer."""
    writer = f"{os.getpid()}.{process_start(os.getpid())}@{HOST}@{MACHINE}"
    return path.with_name(f".{path.name}.{writer}.{uuid.uuid4().hex[:8]}.unfinished")


def remove_unfinished(folder: Path, older_than: float) -> None:
    """Removes what dead writers have left below a folder; call it while holding its lock.

    Args:
        older_than: a writer on another machine is dead if it has not written since; seconds since the epoch, by the
            clock of the disk.
    """
    for path in sorted(folder.rglob(".*.unfinished")):
        if not (name := _UNFINISHED.fullmatch(path.name)):
            continue
        pid, start, machine = name.groups()
        with suppress(FileNotFoundError):  # its writer has just finished
            if machine and machine == MACHINE:
                dead = process_start(int(pid)) != start
            else:
                dead = max(entry.stat().st_mtime for entry in (path, *path.rglob("*"))) < older_than
            if dead and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif dead:
                path.unlink()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name, whose file takes its place when the block ends without an error: a reader sees all or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = unfinished(path)
    try:
        with written_in(path):
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())  # a power cut must not leave the name without the bytes
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(path: Path, content: bytes | str) -> None:
    """Writes a file as `replacing` does."""
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Writes JSON atomically, keys sorted, so that equal values are equal files.

    Args:
        indent: None for long values: one line is written ten times as fast.
    """
    write_atomic(path, json.dumps(value, indent=indent, sort_keys=True, ensure_ascii=False) + "\n")


def share(folder: Path, pattern: str) -> None:
    """Gives files the mode of the umask: safetensors writes for its user alone."""
    probe = folder / ".probe"
    probe.touch()
    mode = stat.S_IMODE(probe.stat().st_mode)
    probe.unlink()
    for path in folder.glob(pattern):
        if stat.S_IMODE(path.stat().st_mode) != mode:  # a disk that has one mode for all files refuses others
            path.chmod(mode)


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_files(folder: Path) -> dict[str, str]:
    """The hash of each file below a folder but its manifest and locks, by its name from there."""
    aside = (folder / MANIFEST, *folder.glob(f"{LOCK}*"))
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path not in aside)
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in files}


def check_files(folder: Path, files: Mapping[str, str], hint: str) -> None:
    """Raises DataError naming the first file that is missing or not as it was hashed."""
    for name, expected in files.items():
        check_file(folder / name, expected, hint)


def hash_value(value: Any) -> str:
    """SHA-256 of a JSON value in canonical form: the fingerprint of a configuration."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def seal(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a manifest or record with their own hash."""
    return fields | {"sha256": hash_value(json.loads(json.dumps(fields)))}


def is_sealed(fields: Mapping[str, Any]) -> bool:
    """Whether fields are as `seal` made them."""
    return fields.get("sha256") == hash_value({key: value for key, value in fields.items() if key != "sha256"})


def read_json(path: Path, hint: str, *keys: str) -> Any:
    """The value of a JSON file that this program wrote; with `keys`, an object that has them.

    Raises:
        DataError: it is missing, or torn, empty or changed; names the file and ends with `hint`.
    """
    try:
        value = json.loads(read_plain(path))
    except FileNotFoundError:
        raise DataError(f"{path} is missing. {hint}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged: it is not JSON ({error}). {hint}") from None
    if missing := [key for key in keys if not isinstance(value, dict) or key not in value]:
        raise DataError(f"{path} is damaged: it lacks {', '.join(missing)}. {hint}")
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


def stamp_of(file: Path) -> tuple[int, ...]:
    """Size, mtime and ctime in ns, and inode of a file: while these stay, so does its content."""
    stat = file.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def finished_run(folder: Path) -> dict[str, Any] | None:
    """The manifest of a run folder that `pretrain` finished; None if it did not, or where the manifest is damaged."""
    return whole_manifest(folder, "recipe", "fingerprint", "steps")


def write_manifest(folder: Path, fields: dict[str, Any]) -> None:
    """Declares a folder finished; call it after everything else in the folder is on disk."""
    write_json(folder / MANIFEST, fields)


def check_file(path: Path, expected_hash: str, hint: str) -> None:
    """Raises DataError naming the file if it is missing or its bytes are not those that were written."""
    if not path.is_file():
        raise DataError(f"{path} is missing. {hint}")
    if (sha256 := hash_file(path)) != expected_hash:
        ours, theirs = first_digits(sha256, expected_hash)
        raise DataError(f"{path} is damaged: its SHA-256 is {ours}, the manifest says {theirs}. {hint}")


def first_digits(sha256: str, expected: str) -> tuple[str, str]:
    """The digits of two hashes up to the first that differs, at least 12 of each."""
    equal = next((i for i, (a, b) in enumerate(zip(sha256, expected, strict=False)) if a != b), 0)
    return sha256[: max(12, equal + 1)], expected[: max(12, equal + 1)]


def write_records(path: Path, records: Sequence[dict[str, Any]]) -> None:
    """Writes scores.json atomically: `{"scores": [...], "sha256": ...}`, the hash being that of the records."""
    write_json(path, {"scores": list(records), "sha256": hash_value(list(records))})


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of a scores.json.

    Raises:
        DataError: the file is missing, holds no scores, was changed after it was written, or is not the one that the
            manifest lists.
    """
    hint = "Delete it and evaluate again."
    if expected := ((whole_manifest(path.parent) or {}).get("files") or {}).get(path.name):
        check_file(path, expected, hint)
    if not path.exists():
        raise DataError(f"{path} is missing: this evaluation has not finished; run it again.")
    content = read_json(path, hint, "scores", "sha256")
    if (sha256 := hash_value(content["scores"])) != content["sha256"]:
        ours, theirs = first_digits(sha256, str(content["sha256"]))
        raise DataError(
            f"{path} is damaged: the SHA-256 of its scores is {ours}, and {theirs} is written in it. {hint}"
        )
    return content["scores"]


def seal_archive(members: Mapping[str, bytes]) -> bytes:
    """A zip archive of files by name, whose comment is the SHA-256 of all that stands before it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = b"0" * _SEAL
        for name, content in sorted(members.items()):
            info = zipfile.ZipInfo(name, _DATE)
            info.external_attr = 0o644 << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    body = out.getvalue()[:-_SEAL]
    return body + hashlib.sha256(body).hexdigest().encode()


def is_sealed_archive(content: bytes) -> bool:
    """Whether the bytes of an archive are those that `seal_archive` gave."""
    return hashlib.sha256(content[:-_SEAL]).hexdigest().encode() == content[-_SEAL:]


def read_archive(content: bytes) -> tuple[dict[str, bytes], list[str]]:
    """The files of an archive by name, and the names of those that cannot be read; zipfile's errors if it is none."""
    members, damaged = {}, []
    archive = zipfile.ZipFile(io.BytesIO(content))
    for name in (name for name in archive.namelist() if not name.endswith("/")):  # as the names of folders do
        try:
            members[name] = archive.read(name)
        except Exception:  # zipfile and zlib raise a dozen kinds on changed bytes
            damaged.append(name)
    return members, damaged
