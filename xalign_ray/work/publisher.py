"""Uploads what is new in the mirror of a store's folder; a manifest goes up last and comes down first."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from xalign_ray.errors import DataError, LockError
from xalign_ray.work.artifacts import MANIFEST, whole_json, write_json
from xalign_ray.work.run_folder import CHECKPOINTS
from xalign_ray.work.storage import find_system, said_of
from xalign_ray.work.stored_lock import StoredLock

RECORD = ".mirror.json"  # here: what is the same in the store; there: which mirror has written last
PUBLISH_S = 1.0  # between two looks for what is new
REFRESH_S = 30.0  # a file that grows is sent again after so long, and after 20 times as long as it takes: no log of a
_REFRESH_TIMES = 20  # long run is sent at each of its lines

_REMOVED_AT_END = ("ray", "tokenized")  # what Ray writes, and what fine-tunings share


@dataclass
class Record:
    """What a mirror knows of its store; beside the files of the mirror.

    Attributes:
        writer: names the mirror, once it has written to the store.
        files: of each file that is the same here and there its version there, "" if unknown, and its size and time of
            change here.
        closed: whether its last writer ended with all published. What is missing here since was removed to make room.
    """

    writer: str = ""
    files: dict[str, list[Any]] = field(default_factory=dict)
    closed: bool = False

    @classmethod
    def of(cls, folder: Path) -> Record:
        """That of a mirror; an empty one where it is missing or damaged."""
        return cls(**(whole_json(folder / RECORD, "writer", "files") or {}))

    def write(self, folder: Path) -> None:
        """Keeps it beside the files."""
        write_json(folder / RECORD, asdict(self))

    def is_same(self, folder: Path, name: str) -> bool:
        """Whether a file here is still what is there."""
        return name in self.files and _stat(folder / name) == self.files[name][1:]

    def add(self, folder: Path, name: str, version: str = "") -> None:
        """Remembers that a file here is the same as there."""
        self.files[name] = [version, *_stat(folder / name)]


def _stat(path: Path) -> list[int]:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return []
    return [stat.st_size, stat.st_mtime_ns]


def is_published(name: str) -> bool:
    """Whether a file of a folder goes to the store: not what begins with a dot, nor what is removed at the end."""
    parts = name.split("/")
    return bool(name) and not any(part.startswith(".") for part in parts) and parts[0] not in _REMOVED_AT_END


def files_below(folder: Path) -> list[str]:
    """The names of the files that go to the store; what is removed meanwhile is left out."""
    found = (Path(above, name).relative_to(folder).as_posix() for above, _, names in os.walk(folder) for name in names)
    return [name for name in found if is_published(name)]


def checkpoint_of(name: str) -> str:
    """The checkpoint's folder that a file is in, "" if in none."""
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] == CHECKPOINTS and len(parts) > 2 else ""


def newest_first(names: set[str]) -> list[str]:
    """Checkpoints by their steps."""
    return sorted(names, key=lambda name: (len(name), name), reverse=True)


class Publisher:
    """Uploads what is new in a mirrored folder while its lock is held."""

    def __init__(self, folder: Path, url: str, lock: StoredLock, stored: dict[str, int], keep: int | None) -> None:
        """
        Args:
            stored: size of each file that is in the store.
            keep: that many checkpoints stay there, those that were never fetched included; all of these if None.
        """
        self._folder, self._url, self._lock, self._keep = folder, url, lock, keep
        self._system, self._root = find_system(url)
        self._record = Record.of(folder)
        self._stored = stored
        self._changed, self._kept_at = False, time.monotonic()
        self._due: dict[str, float] = {}  # when a file that was sent may be sent again

    def publish(self, last: bool) -> None:
        """One pass: what is new; then new checkpoints, each with its manifest last; then old ones are removed.

        Args:
            last: send also what is not due yet, and the folder's own manifest, after all else has arrived.

        Raises:
            DataError: the store refuses, or did not keep what was sent.
            LockError: the lock is lost; nothing more is written.
        """
        names = sorted(files_below(self._folder), key=lambda name: (Path(name).name == MANIFEST, name))
        # Looked for before the log is sent: it then tells of all of them.
        whole = {checkpoint_of(name) for name in names if Path(name).name == MANIFEST} - {""}
        others = [name for name in names if not checkpoint_of(name) and name != MANIFEST]
        new = [one for one in newest_first(whole) if not self._is_sent(f"{one}/{MANIFEST}")]
        try:
            with said_of(self._url, "cannot be published"):
                now = time.monotonic()
                self._send([one for one in others if last or new or self._due.get(one, now) <= now])
                for one in new:
                    self._send_whole([name for name in names if checkpoint_of(name) == one], f"{one}/{MANIFEST}")
                self._remove_gone(set(names), whole)
                if last:
                    self._send_whole(others, MANIFEST)
                    self._record.closed = self._changed = True
        finally:
            if self._changed:
                self._keep_record()

    def _keep_record(self) -> None:
        self._record.write(self._folder)
        self._changed, self._kept_at = False, time.monotonic()

    def _is_sent(self, name: str) -> bool:
        return self._record.is_same(self._folder, name) and name in self._stored

    def _send_whole(self, names: list[str], manifest: str) -> None:
        """The manifest goes last, after the store was asked whether it has the rest."""
        if not (self._folder / manifest).is_file() or all(map(self._is_sent, [*names, manifest])):
            return
        self._send([name for name in names if name != manifest])
        self._check_arrived([name for name in names if name != manifest], manifest.rpartition("/")[0])
        self._send([manifest])

    def _send(self, names: list[str]) -> None:
        for name in names:
            if self._is_sent(name):
                continue
            self._lock.check()
            with suppress(FileNotFoundError):  # pruned meanwhile
                before, began = _stat(self._folder / name), time.monotonic()
                self._system.put_file(str(self._folder / name), f"{self._root}/{name}")
                self._record.files[name], self._stored[name] = ["", *before], before[0]
                self._due[name] = time.monotonic() + max(REFRESH_S, _REFRESH_TIMES * (time.monotonic() - began))
                self._changed = True
                if time.monotonic() > self._kept_at + REFRESH_S:  # killed, a pass over a terabyte goes on from here
                    self._keep_record()

    def _check_arrived(self, names: list[str], below: str) -> None:
        found = sizes_of(self._system, f"{self._root}/{below}".rstrip("/"))
        for name in names:
            size = self._record.files.get(name, ["", 0])[1]
            there = found.get(name.removeprefix(f"{below}/"), 0)
            if there < size:
                self._record.files.pop(name, None)
                raise DataError(f"{self._url}/{name} arrived with {there:,} of its {size:,} bytes.")

    def _remove_gone(self, here: set[str], whole: set[str]) -> None:
        gone = {name for name in self._record.files if name not in here and not checkpoint_of(name)}
        stored = {checkpoint_of(name) for name in self._stored} - {""}
        kept = newest_first({one for one in stored | whole if one in whole or f"{one}/{MANIFEST}" in self._stored})
        for place, one in enumerate(kept):
            if one in whole:
                stored.discard(one)
            elif f"{one}/{MANIFEST}" not in self._record.files and (self._keep is None or place < self._keep):
                stored.discard(one)  # it was never fetched
        gone |= {name for name in self._stored if checkpoint_of(name) in stored}
        gone |= {name for name in self._stored if checkpoint_of(name) in whole and name not in here}
        for name in sorted(gone, key=lambda name: (Path(name).name != MANIFEST, name)):
            self._lock.check()
            with suppress(FileNotFoundError):
                self._system.rm_file(f"{self._root}/{name}")
            self._stored.pop(name, None)
            self._record.files.pop(name, None)
            self._changed = True


def sizes_of(system: Any, root: str) -> dict[str, int]:
    """The size of each file below a folder of a store, by its name from there."""
    found = system.find(root, detail=True)
    return {str(path)[len(root) :].lstrip("/"): int(info["size"]) for path, info in found.items()}


class Behind:
    """Publishes in a thread until it is closed; what the store refuses is said once and tried again."""

    def __init__(self, publisher: Publisher, url: str) -> None:
        self._publisher, self._url = publisher, url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._publish, name="publish", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, after the pass that it is in."""
        self._over.set()
        self._thread.join()

    def _publish(self) -> None:
        said = ""
        while not self._over.wait(PUBLISH_S):
            try:
                self._publisher.publish(last=False)
            except LockError:
                return  # it has interrupted what is done here
            except (DataError, OSError) as error:
                if str(error) != said:
                    sys.stderr.write(f"{error} It goes on here, and is tried again.\n")
                said = str(error)
            else:
                if said:
                    sys.stderr.write(f"{self._url} is being published again.\n")
                said = ""
