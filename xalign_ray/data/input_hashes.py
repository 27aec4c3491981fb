"""The SHA-256 of each input file: read once, in parallel, and remembered while size, times and inode stay."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

from xalign_ray.data.sources.files import facts_of, open_bytes
from xalign_ray.work.artifacts import hash_value, whole_json, write_json
from xalign_ray.work.status_line import PartsDone

MEMORY = "inputs.json"  # in the output's data folder
SETTLED_S = 2  # a file that was written since may be written again within one tick of its disk's clock
TICK_S = 0.02  # longer than a tick of a local disk's clock
_THREADS = 16  # hashing and reading let go of the interpreter
_CHUNK = 4 << 20

Stamp = list[Any]


class InputHashes:
    """What is known of files, by path; another process may keep the same memory: what one of them learns may be lost.

    Args:
        memory: a JSON file; without it nothing is remembered.
    """

    def __init__(self, memory: Path | None) -> None:
        self._memory = memory
        self._found: dict[str, str] = {}

    @classmethod
    def of_output(cls, output: str | Path) -> InputHashes:
        """The memory of an output folder."""
        return cls(Path(output).absolute() / "data" / MEMORY)

    def forget(self) -> None:
        """Lets all files be read again."""
        if self._memory:
            self._memory.unlink(missing_ok=True)

    def of(self, paths: Sequence[str]) -> list[str]:
        """The SHA-256 of each file, by content alone: the same on a disk and in a store; asked again, the same."""
        if distinct := [path for path in dict.fromkeys(paths) if path not in self._found]:
            self._find(distinct)
        return [self._found[path] for path in paths]

    def _find(self, distinct: Sequence[str]) -> None:
        with ThreadPoolExecutor(_THREADS) as threads:
            stamps = dict(zip(distinct, threads.map(facts_of, distinct), strict=True))
            found = {path: known for path, stamp in stamps.items() if (known := _known(self._entries, path, stamp))}
            unread = {path: (stamp[0] or 0 if stamp else 0) for path, stamp in stamps.items() if path not in found}
            with PartsDone("hashing the inputs", unread, part="file") as shown:
                for path, entry in zip(unread, threads.map(_hash, unread, map(stamps.get, unread)), strict=True):
                    found[path] = entry
                    shown.add(path)
        new = {path: entry for path, entry in found.items() if entry["stamp"] and entry != self._entries.get(path)}
        if new and self._memory:
            files = _read(self._memory) | new
            write_json(self._memory, {"files": files, "sha256": hash_value(files)})
        self._found |= {path: entry["sha256"] for path, entry in found.items()}

    @cached_property
    def _entries(self) -> dict[str, Any]:
        return _read(self._memory) if self._memory else {}


def _hash(path: str, stamp: Stamp | None) -> dict[str, Any]:
    if stamp and len(stamp) == 4 and time.time() - stamp[2] / 1e9 < TICK_S:
        time.sleep(TICK_S)  # a change from now on has another ctime
    digest = hashlib.sha256()
    with open_bytes(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return {"stamp": stamp if _is_settled(path, stamp) else None, "sha256": digest.hexdigest()}


def _read(memory: Path) -> dict[str, Any]:
    content = whole_json(memory, "files", "sha256")
    return content["files"] if content and content["sha256"] == hash_value(content["files"]) else {}


def _known(entries: Mapping[str, Any], path: str, stamp: Stamp | None) -> dict[str, Any] | None:
    entry = entries.get(path)
    return entry if entry and stamp and entry["stamp"] == stamp else None


def _is_settled(path: str, before: Stamp | None) -> bool:
    """Whether a file that was just read was not written meanwhile, and can be told from one that will be."""
    return before is not None and before == facts_of(path) and (len(before) < 4 or _age(before) > SETTLED_S)


def _age(stamp: Stamp) -> float:
    return time.time() - stamp[1] / 1e9
