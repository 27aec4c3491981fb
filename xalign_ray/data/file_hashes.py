"""Hashes of a prepared folder's files: listed when it is finished, checked when a process first reads one, repaired."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

from xalign_ray.errors import DataError
from xalign_ray.work.artifacts import check_file, hash_file, hash_value, whole_json, write_atomic, write_json
from xalign_ray.work.status_line import PartsDone

HINT = "Run `xalign prepare` again: it rebuilds what is damaged and nothing else."
TOKENIZER = "tokenizer"
TOKENIZER_FILES = "tokenizer_files.json"  # what the tokenizer was written with, hashed: prepare's record of that step
TESTS = "tests"  # folder of the pairs that retrieval is scored on
RECORDS = "records.json"  # hashes of the files that only prepare reads, as many as there are parts
REGULAR = "regular_pieces.npy"
NEW_ROWS = "new_rows.json"
START_ROWS = "start_rows.npz"
EXCHANGE = "exchange.json"  # how many rows start in each way, and pieces for a word before and after
OPENED = (
    "settings.json", REGULAR, NEW_ROWS, START_ROWS, EXCHANGE, "entries.json", "lexicon.npz", "pairs_trained.npz",
    "pairs_held_out.npz", "pair_words.json", "shards.arrow",
)  # fmt: skip
NOT_OPENED = ("bad_rows.jsonl", "dropped.jsonl", "dictionary_bad_rows.jsonl", TOKENIZER_FILES)
BY_PREPARE = ("parts", "word_alignment")
_MADE_TOGETHER = ("model", "sample")  # of a word alignment: its model is trained again from a sample drawn again
_THREADS = 8  # hashing lets go of the interpreter

_checked: set[tuple[str, int, int, int, int, str]] = set()


def check_once(path: Path, expected: str) -> Path:
    """The path of a file whose bytes are those that were written; a process reads it for this once while it stays.

    Raises:
        DataError: it is missing or damaged.
    """
    if not path.is_file():
        check_file(path, expected, HINT)
    stat = path.stat()
    known = (str(path), stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino, expected)
    if known not in _checked:
        check_file(path, expected, HINT)
        _checked.add(known)
    return path


def write_arrays(path: Path, save: Callable[[BinaryIO], None]) -> None:
    """Writes a file of arrays atomically: `save` is given what np.save or np.savez write into."""
    memory = io.BytesIO()
    save(memory)
    write_atomic(path, memory.getvalue())


def hash_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 by name of those files that are there."""
    sizes = {name: (folder / name).stat().st_size for name in sorted(names) if (folder / name).is_file()}
    found = {}
    with ThreadPoolExecutor(_THREADS) as threads, PartsDone("reading what is prepared", sizes, part="file") as shown:
        for name, digest in zip(sizes, threads.map(lambda name: hash_file(folder / name), sizes), strict=True):
            found[name] = digest
            shown.add(name)
    return found


def list_files(folder: Path) -> dict[str, str]:
    """The manifest's `files`: all that readers of a folder open, besides shards. Writes RECORDS for the others."""
    others = [name for place in BY_PREPARE for name in _below(folder, place)]
    write_json(folder / RECORDS, hash_files(folder, [*NOT_OPENED, *others]))
    return hash_files(folder, [*OPENED, RECORDS, *_below(folder, TOKENIZER), *_below(folder, TESTS)])


def check_files(folder: Path, files: Mapping[str, str]) -> None:
    """Checks what readers open: that it is as it was written, and that nothing else is next to the tokenizer's files.

    Raises:
        DataError: names the file that is missing, damaged or too much.
    """
    for name, expected in files.items():
        check_once(folder / name, expected)
    if more := sorted(set(_below(folder, TOKENIZER)) - set(files)):
        raise DataError(f"{folder / more[0]} is not of this data: prepare did not write it. {HINT}")


def tokenizer_is_whole(folder: Path) -> bool:
    """Whether the step that wrote the tokenizer ended, and its files are as they were then."""
    written = whole_json(folder / TOKENIZER_FILES)
    return written is not None and written == hash_files(folder, {*written, *_below(folder, TOKENIZER)})


def seal(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a manifest with their own hash."""
    return fields | {"sha256": hash_value(json.loads(json.dumps(fields)))}


def is_sealed(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest is as `seal` made it."""
    fields = {key: value for key, value in manifest.items() if key != "sha256"}
    return manifest.get("sha256") == hash_value(fields)


def remove_damaged(folder: Path, manifest: Mapping[str, Any], shards: Mapping[str, str]) -> bool:
    """Reads every file of a finished folder, and removes what is not as it was written; whether there was any."""
    records = whole_json(folder / RECORDS) or {}
    listed = manifest["files"] | records | shards
    extra = set(_below(folder, TOKENIZER)) - set(listed)
    found = hash_files(folder, listed)
    damaged = {name for name, expected in listed.items() if found.get(name) != expected} | extra
    for name in damaged:
        (folder / name).unlink(missing_ok=True)
        parts = Path(name).parts
        if parts[0] == "word_alignment" and parts[2] in _MADE_TOGETHER:
            for made in _MADE_TOGETHER:
                shutil.rmtree(folder.joinpath(*parts[:2], made), ignore_errors=True)
    return bool(damaged)


def _below(folder: Path, place: str) -> list[str]:
    """Names of the files below a part of the folder; not those that somebody has yet to finish."""
    return [
        path.relative_to(folder).as_posix()
        for path in sorted((folder / place).rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    ]
