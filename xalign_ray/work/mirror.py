"""Keeps a folder of a store on this disk: fetched when it is opened, uploaded in the background, manifest last"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from xalign_ray.errors import ConfigError, DataError, LockError
from xalign_ray.work.artifacts import MANIFEST, check_files, hash_file, unfinished, whole_json, write_atomic, write_json
from xalign_ray.work.locks import BEAT_S, StoredLock, hold_stored
from xalign_ray.work.run_folder import CHECKPOINTS, RunFolder
from xalign_ray.work.status_line import duration, say
from xalign_ray.work.storage import (
    cache_folder,
    check_scheme,
    find_system,
    said_of,
    shown_path,
    url_of,
)

RECORD = ".mirror.json"  # here: the files that equal those in the store; there: the mirror that has written last
PUBLISH_S = 1.0  # between two looks for new files
QUICK_S = 5.0  # an upload at the end that takes longer is reported
REFRESH_S = 30.0  # a file that grows is sent again after so long, and after 20 times as long as it takes: no log of a
_REFRESH_TIMES = 20  # long run is sent at each of its lines

_REMOVED_AT_END = ("ray", "tokenized")  # what Ray writes, and what fine-tunings share


@dataclass
class Record:
    """The state of a mirror, kept next to its files.

    Attributes:
        writer: names the mirror, once it has written to the store.
        files: of each file that is the same here and there its version there, "" if unknown, and its size and time of
            change here.
        closed: whether its last writer ended with all published. Files missing since were removed to make room.
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
        """Whether a file here still equals the one in the store."""
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
    """Whether a file of a folder goes to the store: dot files and folders that are removed at the end do not."""
    parts = name.split("/")
    return all(parts) and not any(part.startswith(".") for part in parts) and parts[0] not in _REMOVED_AT_END


def files_below(folder: Path) -> list[str]:
    """The names of the files that go to the store."""
    below = (Path(above, name).relative_to(folder).as_posix() for above, _, names in os.walk(folder) for name in names)
    return [name for name in below if is_published(name)]


def checkpoint_of(name: str) -> str:
    """The checkpoint's folder that a file is in, "" if in none."""
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] == CHECKPOINTS and len(parts) > 2 else ""


def newest_first(names: set[str]) -> list[str]:
    """Checkpoints by their steps."""
    return sorted(names, key=lambda name: (len(name), name), reverse=True)


class Publisher:
    """Uploads new files of a mirrored folder while its lock is held."""

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
        """One pass: new files; then new checkpoints, each with its manifest last; then old ones are removed.

        Args:
            last: also files that are not due yet, and after all else has arrived the folder's manifest.

        Raises:
            DataError: the store refuses, or lost a file that was sent.
            LockError: the lock is lost; nothing more is written.
        """
        names = sorted(files_below(self._folder), key=lambda name: (Path(name).name == MANIFEST, name))
        # Looked for before the log is sent: the log then has events of all of them.
        checkpoints = {checkpoint_of(name) for name in names if Path(name).name == MANIFEST} - {""}
        others = [name for name in names if not checkpoint_of(name) and name != MANIFEST]
        new = [folder for folder in newest_first(checkpoints) if not self._is_sent(f"{folder}/{MANIFEST}")]
        try:
            with said_of(self._url, "cannot be published"):
                now = time.monotonic()
                self._send([name for name in others if last or new or self._due.get(name, now) <= now])
                for folder in new:
                    self._send_whole([name for name in names if checkpoint_of(name) == folder], f"{folder}/{MANIFEST}")
                self._remove_gone(set(names), checkpoints)
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
        stored = files_in(self._system, f"{self._root}/{below}".rstrip("/"))
        for name in names:
            size = self._record.files.get(name, ["", 0])[1]
            there = int(stored.get(name.removeprefix(f"{below}/"), {"size": 0})["size"])
            if there < size:
                self._record.files.pop(name, None)
                raise DataError(f"{self._url}/{name} arrived with {there:,} of its {size:,} bytes.")

    def _remove_gone(self, here: set[str], whole: set[str]) -> None:
        gone = {name for name in self._record.files if name not in here and not checkpoint_of(name)}
        stored = {checkpoint_of(name) for name in self._stored} - {""}
        finished = {folder for folder in stored if f"{folder}/{MANIFEST}" in self._stored} | whole
        for rank, folder in enumerate(newest_first(finished)):
            if folder in whole:
                stored.discard(folder)
            elif f"{folder}/{MANIFEST}" not in self._record.files and (self._keep is None or rank < self._keep):
                stored.discard(folder)  # it was never fetched
        gone |= {name for name in self._stored if checkpoint_of(name) in stored}
        gone |= {name for name in self._stored if checkpoint_of(name) in whole and name not in here}
        for name in sorted(gone, key=lambda name: (Path(name).name != MANIFEST, name)):
            self._lock.check()
            with suppress(FileNotFoundError):
                self._system.rm_file(f"{self._root}/{name}")
            self._stored.pop(name, None)
            self._record.files.pop(name, None)
            self._changed = True


def files_in(system: Any, root: str) -> dict[str, dict[str, Any]]:
    """The store's facts on each file below a folder, by relative name."""
    return {str(path)[len(root) :].lstrip("/"): info for path, info in system.find(root, detail=True).items()}


AWAY_S = 60.0  # for so long the upload at the end waits for a store that does not take it
_KEPT = "All is in {}: the same command publishes it."
_AS_PATH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)")  # a URL, also one that a Path took a slash from


def local_folder(path: str | Path) -> Path:
    """Where a folder lies on this disk: itself, also as file:///PATH, or the mirror of a URL.

    Raises:
        DataError: the URL is of no store that is supported.
    """
    if (named := _AS_PATH.fullmatch(str(path))) is None:
        return Path(path)
    scheme = check_scheme(f"{named[1]}://{named[2]}")
    return Path("/", named[2]) if scheme == "file" else cache_folder() / scheme / named[2].strip("/")


def data_of_run(run: Path, named: str) -> Path:
    """Where the prepared data lies that a run's start event names: beside the run, if they were moved together."""
    folder = local_folder(named)
    beside = run.absolute().parent / "data" / folder.name
    return beside if beside.is_dir() and not folder.is_dir() else folder


def opened(path: str | Path) -> Path:
    """The folder of a run, a study or a task's data on this disk: itself, or the mirror of a URL, brought up to date.

    Raises:
        ConfigError: there is nothing at the URL.
        DataError: the store refuses.
    """
    folder = local_folder(path)
    refresh(folder)
    if (url := url_of(folder)) and not folder.is_dir():
        raise ConfigError(f"There is nothing at {url}.")
    return folder


def fetch(folder: Path) -> None:
    """Brings a finished folder of the store here unless it is here already; nothing for a folder that is no mirror.

    Raises:
        DataError: the store refuses.
    """
    if url_of(folder) and not (folder / MANIFEST).is_file() and is_finished(folder):
        refresh(folder)


def fetch_listed(folder: Path) -> None:
    """Brings the files that the manifest of a finished folder lists here, unless they are here; nothing for no mirror.

    Raises:
        DataError: the store refuses.
    """
    if (url := url_of(folder)) is None or (folder / MANIFEST).is_file() or not is_finished(folder):
        return
    system, root = find_system(url)
    with said_of(url, "cannot be fetched"):
        manifest = system.cat_file(f"{root}/{MANIFEST}")
        for name, digest in json.loads(manifest)["files"].items():
            if not is_published(name):  # what others have written in a store must not lead out of the mirror
                raise DataError(f"{url}/{MANIFEST} is damaged: it names '{name}', which is no file of this folder.")
            partial = unfinished(folder / name)
            partial.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(f"{root}/{name}", str(partial))
            if hash_file(partial) != digest:  # once more: a network may have changed it
                system.get_file(f"{root}/{name}", str(partial))
            partial.replace(folder / name)
    write_atomic(folder / MANIFEST, manifest)


def publish_file(path: Path) -> None:
    """Uploads one file of a mirror, replacing the stored one; does nothing outside a mirror.

    Raises:
        DataError: the store refuses.
    """
    if (url := url_of(path)) is not None:
        system, there = find_system(url)
        with said_of(url, "cannot be published"):
            system.put_file(str(path), there)


def is_finished(folder: Path) -> bool:
    """Whether a folder has its manifest where others look for it: in the store, if it is a mirror."""
    if (url := url_of(folder)) is None:
        return whole_json(folder / MANIFEST) is not None
    system, root = find_system(url)
    with said_of(url):
        return system.exists(f"{root}/{MANIFEST}")


def refresh(folder: Path) -> None:
    """Fetches new files of the store, but no checkpoints; does nothing for a folder that is no mirror.

    Files made here that could not be published stay, as long as no other machine has written there since.

    Raises:
        DataError: the store refuses.
    """
    if (url := url_of(folder)) is not None:
        with said_of(url, "cannot be fetched"):
            _Stored(folder, url).fetch()


def fetch_checkpoint(folder: Path, step: int | None = None) -> None:
    """Brings the newest whole checkpoint of a run here, or that of a step, unless it is here.

    A damaged one is passed over with a sentence for the one before it.

    Raises:
        DataError: the store refuses.
    """
    if (url := url_of(folder)) is not None:
        with said_of(url, "cannot be fetched"):
            _Stored(folder, url).fetch_checkpoint(step)


@contextmanager
def published(folder: Path, verb: str, keep: int | None = None, beat_s: float = BEAT_S) -> Iterator[None]:
    """Inside, this process alone writes a folder of a store: it is fetched first, and published while it grows.

    Nothing for a folder that is no mirror.

    Args:
        keep: number of checkpoints that stay there; all if None. One that is removed here is removed there.

    Raises:
        LockError: another process writes it, or has taken it over.
        DataError: the store refuses, at the begin or at the end; between them it is tried again.
    """
    if (url := url_of(folder)) is None:
        yield
        return
    with hold_stored(url, verb, beat_s=beat_s) as lock:
        with said_of(url, "cannot be fetched"):
            stored = _Stored(folder, url)
            stored.take_over()
        publisher = Publisher(folder, url, lock, stored.sizes, keep)
        try:
            with _behind(publisher, url):
                yield
        except BaseException:
            if not lock.lost:
                _say_rest(publisher, folder)
            raise
        reported, until = "", time.monotonic() + AWAY_S
        while True:
            try:
                return publisher.publish(last=True)
            except DataError as error:
                if time.monotonic() > until:
                    raise DataError(f"{error} {_KEPT.format(folder)}") from error
                if str(error) != reported:
                    say(f"{error} All else is done; the upload is tried again for {duration(AWAY_S)}.")
                reported = str(error)
                time.sleep(PUBLISH_S)


@contextmanager
def _behind(publisher: Publisher, url: str) -> Iterator[None]:
    """Inside, a background thread publishes; a refusal of the store is reported once and retried."""
    over = threading.Event()

    def publish() -> None:
        reported = ""
        while not over.wait(PUBLISH_S):
            try:
                publisher.publish(last=False)
            except LockError:
                return  # the lock has interrupted the main thread
            except (DataError, OSError) as error:
                if str(error) != reported:
                    sys.stderr.write(f"{error} It goes on here, and is tried again.\n")
                reported = str(error)
            else:
                if reported:
                    sys.stderr.write(f"{url} is being published again.\n")
                reported = ""

    thread = threading.Thread(target=publish, name="publish", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(QUICK_S)
        if thread.is_alive():
            say(f"All but an upload to {url} is done; if it fails, it is tried again for {duration(AWAY_S)}.")
            thread.join()


def _say_rest(publisher: Publisher, folder: Path) -> None:
    """Publishes the rest while another error is raised: an error here is only printed."""
    try:
        publisher.publish(last=True)
    except DataError as error:
        sys.stderr.write(f"{error} {_KEPT.format(folder)}\n")


class _Stored:
    """The present state of a folder of a store, compared with its mirror.

    Attributes:
        sizes: of each file that is published.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self._url = folder, url
        self._system, self._root = find_system(url)
        self._infos = files_in(self._system, self._root)
        self.sizes = {name: int(info["size"]) for name, info in self._infos.items() if is_published(name)}
        self._record = Record.of(folder)
        if self._record.closed:
            self._record.files = {name: at for name, at in self._record.files.items() if (folder / name).exists()}
        self._writer = self._system.cat_file(f"{self._root}/{RECORD}").decode() if RECORD in self._infos else ""

    def fetch(self) -> None:
        """Fetches new files, but no checkpoints; removes files that others have removed."""
        for name in sorted(self.sizes, key=_manifests_last):
            if not checkpoint_of(name) and not self._is_here(name):
                self._get(name)
        if not self._is_ours:
            for name in [name for name in self._record.files if name not in self._infos and not checkpoint_of(name)]:
                (self._folder / name).unlink(missing_ok=True)
                del self._record.files[name]
        if self._infos:
            self._record.write(self._folder)

    def take_over(self) -> None:
        """Makes this mirror the writer: files that another has written meanwhile replace those here."""
        ours = self._is_ours
        if not ours:
            if self._record.writer:
                sys.stderr.write(f"{self._url} was written elsewhere since: it replaces what is in {self._folder}.\n")
                (self._folder / MANIFEST).unlink(missing_ok=True)
                self._record.files.pop(MANIFEST, None)
            for checkpoint in self._whole_here():
                if not self._is_here(f"{checkpoint}/{MANIFEST}"):
                    shutil.rmtree(self._folder / checkpoint)
        self.fetch()
        if MANIFEST not in self._infos:
            self.fetch_checkpoint(None)
        self._record.writer, self._record.closed = self._record.writer if ours else uuid.uuid4().hex, False
        self._record.write(self._folder)
        if not ours:
            self._system.pipe_file(f"{self._root}/{RECORD}", self._record.writer.encode())

    def fetch_checkpoint(self, step: int | None) -> None:
        """Brings the newest whole checkpoint here, or that of a step, its manifest last, unless it is here.

        With the newest one come those that have a score on dev pairs: the best of these is exported.
        """
        here = self._whole_here()
        there = {checkpoint_of(name) for name in self.sizes if name.endswith(f"/{MANIFEST}")} - {""}
        damaged, is_found = list[str](), False
        for checkpoint in newest_first(here | there):
            if step is not None and RunFolder(self._folder).checkpoint(step).name != Path(checkpoint).name:
                continue
            if is_found and (checkpoint in here or self._manifest(checkpoint).get("dev") is None):
                continue
            if (checkpoint in here or self._get_checkpoint(checkpoint, damaged)) and not is_found:
                damaged, is_found = [f"{sentence} {Path(checkpoint).name} is taken." for sentence in damaged], True
        for sentence in damaged:
            sys.stderr.write(f"{sentence}\n")
        self._record.write(self._folder)

    def _manifest(self, checkpoint: str) -> dict[str, Any]:
        """That of a checkpoint in the store; empty where it cannot be read."""
        with suppress(ValueError, OSError):
            return json.loads(self._system.cat_file(f"{self._root}/{checkpoint}/{MANIFEST}"))
        return {}

    def _get_checkpoint(self, checkpoint: str, damaged: list[str]) -> bool:
        names = sorted((name for name in self.sizes if checkpoint_of(name) == checkpoint), key=_manifests_last)
        try:
            manifest = json.loads(self._system.cat_file(f"{self._root}/{checkpoint}/{MANIFEST}"))
            for name in names[:-1]:
                self._get(name)
            check_files(self._folder / checkpoint, manifest["files"], "")
        except (DataError, ValueError, KeyError, TypeError) as error:
            damaged.append(f"{self._url}/{checkpoint} is damaged: {error}".strip())
            shutil.rmtree(self._folder / checkpoint, ignore_errors=True)
            return False
        self._get(names[-1])
        return True

    def _get(self, name: str) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        partial, size = unfinished(path), self.sizes[name]
        try:
            self._system.get_file(f"{self._root}/{name}", str(partial))
            if (came := partial.stat().st_size) < size:
                raise EOFError(f"the store ended {name} after {came:,} of {size:,} bytes")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        self._record.add(self._folder, name, self._version(name))

    @property
    def _is_ours(self) -> bool:
        """Whether no other mirror has written since this one: files here are as new as those there, or newer."""
        return bool(self._record.writer) and self._record.writer == self._writer

    def _is_here(self, name: str) -> bool:
        if self._is_ours:
            return name in self._record.files or (self._folder / name).exists()
        version = self._record.files.get(name, [""])[0]
        return bool(version) and version == self._version(name) and self._record.is_same(self._folder, name)

    def _version(self, name: str) -> str:
        info = self._infos.get(name, {})
        return str(next((info[key] for key in ("ETag", "etag", "mtime", "created") if key in info), ""))

    def _whole_here(self) -> set[str]:
        manifests = RunFolder(self._folder).checkpoints.glob(f"*/{MANIFEST}")
        return {path.parent.relative_to(self._folder).as_posix() for path in manifests}


def _manifests_last(name: str) -> tuple[bool, bool, str]:
    return name == MANIFEST, Path(name).name == MANIFEST, name


JOB_MARK = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # what Ray sets in the process that `ray job submit` started, and only there


def check_lasting(key: str, path: str | Path | None, in_job: bool = False) -> None:
    """Refuses a folder in the working directory of a Ray job: that is an upload, which goes with the job.

    Args:
        in_job: the verb will run in a job, in another working directory; a relative path starts there.
    """
    if path is None or url_of(folder := local_folder(path)):
        return
    if in_job:
        lasts = folder.is_absolute()
    else:
        lasts = JOB_MARK not in os.environ or not folder.absolute().is_relative_to(Path.cwd())
    if not lasts:
        raise ConfigError(
            f"{key} is '{shown_path(folder)}': in a Ray job a relative path lies in the uploaded copy of the code, "
            "which is removed after the job. Give an absolute one that all nodes see, for example --set "
            "output=/shared/runs."
        )
