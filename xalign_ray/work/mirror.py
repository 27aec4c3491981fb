"""Copies of folders of a store on this disk: fetched when opened, uploaded at each checkpoint and at the end."""

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
from pathlib import Path
from typing import Any

from xalign_ray.errors import ConfigError, DataError, LockError
from xalign_ray.work.artifacts import MANIFEST, check_files, hash_file, unfinished, whole_json, write_atomic, write_json
from xalign_ray.work.locks import BEAT_S, Lock, hold_stored, is_locked
from xalign_ray.work.run_folder import CHECKPOINTS, RunFolder
from xalign_ray.work.status_line import duration, say
from xalign_ray.work.storage import cache_folder, check_scheme, find_system, said_of, shown_path, url_of

RECORD = ".mirror.json"  # here: the files that equal those in the store; there: the name of the copy that wrote last
PUBLISH_S = 1.0  # between two looks for new checkpoints
QUICK_S = 5.0  # an upload at the end that takes longer is reported
AWAY_S = 60.0  # for so long the upload at the end waits for a store that does not take it

_REMOVED_AT_END = ("ray", "tokenized")  # what Ray writes, and what fine-tunings share
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


def is_finished(folder: Path) -> bool:
    """Whether a folder has its manifest where others look for it: in the store, if it is a mirror."""
    if (url := url_of(folder)) is None:
        return whole_json(folder / MANIFEST) is not None
    system, root = find_system(url)
    with said_of(url):
        return system.exists(f"{root}/{MANIFEST}")


def refresh(folder: Path) -> None:
    """Fetches new files of the store, but no checkpoints; does nothing for a folder that is no mirror.

    Files made here that could not be uploaded stay, as long as no other machine has written there since.

    Raises:
        DataError: the store refuses.
    """
    if (url := url_of(folder)) is not None:
        with said_of(url, "cannot be fetched"):
            FolderMirror(folder, url).fetch()


def fetch_checkpoint(folder: Path, step: int | None = None) -> None:
    """Brings the newest whole checkpoint of a run here, or that of a step, unless it is here.

    A damaged one is passed over with a sentence for the one before it.

    Raises:
        DataError: the store refuses.
    """
    if (url := url_of(folder)) is not None:
        with said_of(url, "cannot be fetched"):
            FolderMirror(folder, url).fetch_checkpoint(step)


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


def upload(folder: Path, verb: str) -> None:
    """Uploads a finished folder, its manifest last; does nothing for a folder that is no mirror.

    Raises:
        LockError: another process writes it.
        DataError: the store refuses, for a minute.
    """
    if (url := url_of(folder)) is not None:
        with hold_stored(url, verb) as lock:
            with said_of(url):
                mirror = FolderMirror(folder, url, lock)
            _upload_rest(mirror, folder)


@contextmanager
def published(folder: Path, verb: str, keep: int | None = None, beat_s: float = BEAT_S) -> Iterator[None]:
    """Inside, this process alone writes a folder of a store: it is fetched first, and uploaded as it grows.

    A background thread uploads each new checkpoint, and with it the log and all else that is new. At the end all is
    uploaded, the folder's manifest last. Nothing for a folder that is no mirror.

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
            mirror = FolderMirror(folder, url, lock, keep)
            mirror.take_over()
        try:
            with _uploading(mirror, url):
                yield
        except BaseException:
            if not lock.lost:
                try:
                    mirror.upload(is_last=True)
                except DataError as error:
                    sys.stderr.write(f"{error} {_KEPT.format(folder)}\n")
            raise
        _upload_rest(mirror, folder)


_KEPT = "All is in {}: the same command publishes it."


def _upload_rest(mirror: FolderMirror, folder: Path) -> None:
    """Uploads all that is new, also to a store that is away for a minute."""
    reported, until = "", time.monotonic() + AWAY_S
    while True:
        try:
            return mirror.upload(is_last=True)
        except DataError as error:
            if time.monotonic() > until:
                raise DataError(f"{error} {_KEPT.format(folder)}") from error
            if str(error) != reported:
                say(f"{error} All else is done; the upload is tried again for {duration(AWAY_S)}.")
            reported = str(error)
            time.sleep(PUBLISH_S)


@contextmanager
def _uploading(mirror: FolderMirror, url: str) -> Iterator[None]:
    """Inside, a background thread uploads new checkpoints; a refusal of the store is reported once and retried."""
    over = threading.Event()

    def upload_new() -> None:
        reported = ""
        while not over.wait(PUBLISH_S):
            try:
                mirror.upload(is_last=False)
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

    thread = threading.Thread(target=upload_new, name="publish", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(QUICK_S)
        if thread.is_alive():
            say(f"All but an upload to {url} is done; if it fails, it is tried again for {duration(AWAY_S)}.")
            thread.join()


class FolderMirror:
    """A folder of a store and its copy on this disk.

    The record here holds the copy's name, once it has written, and of each file that is equal here and there its
    version there, and its size and mtime here. A copy that wrote last has all that is there, or newer files; any other
    copy takes the store's.
    """

    def __init__(self, folder: Path, url: str, lock: Lock | None = None, keep: int | None = None) -> None:
        """
        Args:
            lock: held by who uploads.
            keep: that many checkpoints stay there, those that were never fetched included; all of these if None.
        """
        self._folder, self._url, self._lock, self._keep = folder, url, lock, keep
        self._system, self._root = find_system(url)
        listing = self._system.find(self._root, detail=True)
        infos = {str(path)[len(self._root) :].lstrip("/"): info for path, info in listing.items()}
        self._there = {name: info for name, info in infos.items() if is_published(name)}
        self._records_there = {name for name in infos if Path(name).name == RECORD}
        record = self._record_of("")
        self._name = record["name"]
        # Files removed here between two commands, to make room, stay in the store.
        self._equal = {name: facts for name, facts in record["equal"].items() if (folder / name).exists()}
        self._is_ours = self._wrote_last("")

    def _read(self, name: str) -> bytes:
        return self._system.cat_file(f"{self._root}/{name}")

    def _record_of(self, below: str) -> dict[str, Any]:
        return whole_json(self._folder / below / RECORD, "name", "equal") or {"name": "", "equal": {}}

    def _wrote_last(self, below: str) -> bool:
        """Whether of all copies of this folder, or of one below, that of this disk wrote last."""
        there, name = f"{below}/{RECORD}".lstrip("/"), self._record_of(below)["name"]
        return bool(name) and there in self._records_there and self._read(there).decode() == name

    def _is_written_here(self, name: str) -> bool:
        """Whether a file is left to another writer here: of a folder below, or the manifest of a folder that is open.

        One below keeps its files while it has a lock, and after that where its copy wrote last: an upload of it may
        have failed. What is missing here is fetched, but for a manifest that the holder of the lock has removed.
        """
        if name == MANIFEST and self._lock is None and is_locked(self._folder):
            return True
        below = [str(above) for above in Path(name).parents][:-1]
        if (self._folder / name).exists():
            return any(is_locked(self._folder / one) or self._wrote_last(one) for one in below)
        return _is_manifest(name) and any(is_locked(self._folder / one) for one in below)

    def fetch(self) -> None:
        """Fetches new files, but no checkpoints; removes files that others have removed."""
        for name in sorted(self._there, key=_manifests_last):
            if not checkpoint_of(name) and not self._is_here(name) and not self._is_written_here(name):
                self._get(name)
        gone = [name for name in self._equal if name not in self._there and not checkpoint_of(name)]
        for name in () if self._is_ours else gone:
            if self._is_written_here(name):
                continue
            (self._folder / name).unlink(missing_ok=True)
            del self._equal[name]
        if self._there:
            self._write_record()

    def take_over(self) -> None:
        """Makes this copy the one that wrote last: the store's files replace those here that differ.

        Files that were never there stay, as scores that could not be uploaded, but for checkpoints and the manifest.
        """
        if not self._is_ours and self._there:
            if self._name:
                sys.stderr.write(f"{self._url} was written elsewhere since: it replaces what is in {self._folder}.\n")
            for name in files_below(self._folder):
                if checkpoint_of(name) and not self._is_here(name):
                    shutil.rmtree(self._folder / checkpoint_of(name), ignore_errors=True)
            if not self._is_here(MANIFEST):
                (self._folder / MANIFEST).unlink(missing_ok=True)
        self.fetch()
        if MANIFEST not in self._there:
            self.fetch_checkpoint(None)
        if not self._is_ours:
            self._name, self._is_ours = uuid.uuid4().hex, True
            self._write_record()
            self._system.pipe_file(f"{self._root}/{RECORD}", self._name.encode())

    def fetch_checkpoint(self, step: int | None) -> None:
        """Brings the newest whole checkpoint here, or that of a step, its manifest last, unless it is here.

        With the newest one come those that have a score on dev pairs: the best of these is exported.
        """
        here, there = self._whole_here(), {checkpoint_of(name) for name in self._there if _is_manifest(name)} - {""}
        damaged, is_found = list[str](), False
        for checkpoint in newest_first(here | there):
            if step is not None and RunFolder(self._folder).checkpoint(step).name != Path(checkpoint).name:
                continue
            if is_found and (checkpoint in here or not self._is_scored(checkpoint)):
                continue
            if (checkpoint in here or self._get_checkpoint(checkpoint, damaged)) and not is_found:
                damaged, is_found = [f"{sentence} {Path(checkpoint).name} is taken." for sentence in damaged], True
        for sentence in damaged:
            sys.stderr.write(f"{sentence}\n")
        self._write_record()

    def _is_scored(self, checkpoint: str) -> bool:
        with suppress(ValueError, OSError):
            return json.loads(self._read(f"{checkpoint}/{MANIFEST}")).get("dev") is not None
        return False

    def _get_checkpoint(self, checkpoint: str, damaged: list[str]) -> bool:
        *files, manifest = sorted((n for n in self._there if checkpoint_of(n) == checkpoint), key=_manifests_last)
        try:
            hashes = json.loads(self._read(manifest))["files"]
            for name in files:
                self._get(name)
            check_files(self._folder / checkpoint, hashes, "")
        except (DataError, ValueError, KeyError, TypeError) as error:
            damaged.append(f"{self._url}/{checkpoint} is damaged: {error}".strip())
            shutil.rmtree(self._folder / checkpoint, ignore_errors=True)
            return False
        self._get(manifest)
        return True

    def _get(self, name: str) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        partial, size = unfinished(path), int(self._there[name]["size"])
        try:
            self._system.get_file(f"{self._root}/{name}", str(partial))
            if (arrived := partial.stat().st_size) < size:
                raise EOFError(f"the store ended {name} after {arrived:,} of {size:,} bytes")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        self._equal[name] = [self._version(name), *_stat(path)]

    def _is_here(self, name: str) -> bool:
        if self._is_ours:
            return (self._folder / name).exists()
        return name in self._there and self._equal.get(name) == [self._version(name), *_stat(self._folder / name)]

    def _version(self, name: str) -> str:
        info = self._there[name]
        return str(next(info[key] for key in ("ETag", "etag", "mtime", "created", "size") if key in info))

    def _whole_here(self) -> set[str]:
        manifests = RunFolder(self._folder).checkpoints.glob(f"*/{MANIFEST}")
        return {path.parent.relative_to(self._folder).as_posix() for path in manifests}

    def _write_record(self) -> None:
        write_json(self._folder / RECORD, {"name": self._name, "equal": self._equal})

    def upload(self, is_last: bool) -> None:
        """One pass: all that is new, then new checkpoints, each with its manifest last; then old ones are removed.

        Args:
            is_last: also without a new checkpoint, and after all else has arrived the folder's manifest.

        Raises:
            DataError: the store refuses, or an upload arrived in part.
            LockError: the lock is lost; nothing more is written.
        """
        checkpoints = self._whole_here()
        new = [folder for folder in newest_first(checkpoints) if not self._is_sent(f"{folder}/{MANIFEST}")]
        if not new and not is_last:
            return
        names = sorted(files_below(self._folder), key=_manifests_last)  # a log of after the checkpoint was seen
        others = [name for name in names if not checkpoint_of(name) and name != MANIFEST]
        try:
            with said_of(self._url, "cannot be published"):
                if not self._is_sent(MANIFEST):
                    self._remove(MANIFEST)
                self._send(others)
                for folder in new:
                    self._send([name for name in names if checkpoint_of(name) == folder])
                self._remove_gone({*names}, checkpoints)
                if is_last and MANIFEST in names:
                    self._send([MANIFEST])
        finally:
            self._write_record()

    def _is_sent(self, name: str) -> bool:
        stat = _stat(self._folder / name)
        return name in self._there and stat != [] and self._equal.get(name, [""])[1:] == stat

    def _send(self, names: list[str]) -> None:
        for name in names:
            if self._is_sent(name):
                continue
            self._check_lock()
            with suppress(FileNotFoundError):  # pruned meanwhile
                stat, there = _stat(self._folder / name), f"{self._root}/{name}"
                self._system.put_file(str(self._folder / name), there)
                self._there[name] = self._system.info(there)
                if (arrived := int(self._there[name]["size"])) < stat[0]:
                    raise DataError(f"{self._url}/{name} arrived with {arrived:,} of its {stat[0]:,} bytes.")
                self._equal[name] = [self._version(name), *stat]

    def _remove_gone(self, here: set[str], checkpoints: set[str]) -> None:
        """Removes files there that were removed here, and checkpoints beyond `keep`, manifests first."""
        there = newest_first({checkpoint_of(name) for name in self._there if _is_manifest(name)} - {""})
        stay = {name for name in there[: self._keep] if f"{name}/{MANIFEST}" not in self._equal} | checkpoints
        gone = [
            name
            for name in self._there
            if (checkpoint_of(name) not in stay if checkpoint_of(name) else name not in here)
        ]
        for name in sorted(gone, key=lambda name: (not _is_manifest(name), name)):
            self._remove(name)

    def _remove(self, name: str) -> None:
        if name in self._there:
            self._check_lock()
            with suppress(FileNotFoundError):
                self._system.rm_file(f"{self._root}/{name}")
            self._equal.pop(name, None)
            del self._there[name]

    def _check_lock(self) -> None:
        assert self._lock is not None, "only the holder of a folder's lock writes it"
        self._lock.check()


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


def _is_manifest(name: str) -> bool:
    return Path(name).name == MANIFEST


def _manifests_last(name: str) -> tuple[bool, bool, str]:
    return name == MANIFEST, _is_manifest(name), name


def _stat(path: Path) -> list[int]:
    """Size and mtime in ns; empty for a file that is not there."""
    with suppress(FileNotFoundError):
        stat = path.stat()
        return [stat.st_size, stat.st_mtime_ns]
    return []


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
