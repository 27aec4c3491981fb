"""Keeps a folder of a store on this disk: fetched when it is opened, published behind the work, manifest last."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from xalign_ray import stops
from xalign_ray.artifacts import MANIFEST
from xalign_ray.errors import DataError, LockError
from xalign_ray.locks import BEAT_S, LEASE_S, LOCK, LOOK_S, Holder
from xalign_ray.run_folder import CHECKPOINTS
from xalign_ray.storage import find_system, is_url, said_of

CACHE = "XALIGN_CACHE"  # the folder that mirrors stores; nodes of a cluster must share it
_CONDITION = r"(?i)precondition|pre-condition|412|FileExists|conditionalrequestconflict"  # of a write that was not done
PUBLISH_S = 1.0  # between two looks for what is new


def cache_folder() -> Path:
    """Where stores are mirrored."""
    return Path(os.environ.get(CACHE) or Path.home() / ".cache" / "xalign-ray").absolute()


def local_folder(output: str) -> Path:
    """Where an output lies on this disk: itself, or the mirror of a URL."""
    scheme, _, rest = output.partition("://")
    return cache_folder() / scheme / rest.strip("/") if is_url(output) else Path(output)


def url_of(folder: Path) -> str | None:
    """The URL that a folder mirrors; None of one that is only here."""
    try:
        scheme, *rest = folder.absolute().relative_to(cache_folder()).parts
    except ValueError:
        return None
    return f"{scheme}://{'/'.join(rest)}"


def fetch(folder: Path, anew: bool = False) -> None:
    """Brings a finished folder of the store here unless it is here already; nothing for a folder that is no mirror.

    Args:
        anew: bring everything that is there, finished or not, in place of what is here; call it while holding the lock.

    Raises:
        DataError: the store refuses.
    """
    url = url_of(folder)
    if url is None or (not anew and (folder / MANIFEST).is_file()):
        return
    system, root = find_system(url)
    with said_of(url, "cannot be fetched"):
        if not anew and not system.exists(f"{root}/{MANIFEST}"):
            return
        found = system.find(root)
        for path in folder.iterdir() if anew and folder.is_dir() else ():
            if not path.name.startswith(LOCK):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        names = [str(path)[len(root) :].lstrip("/") for path in found]
        for name in sorted(filter(_is_published, names), key=_manifests_last):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            partial = folder / f"{name}.fetched"
            system.get_file(f"{root}/{name}", str(partial))
            partial.replace(folder / name)


class Publisher:
    """Uploads what is new in a mirrored folder, each file once while it stays as it is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._url = url_of(folder) or ""
        self._sent: dict[str, tuple[int, int]] = {}

    def publish(self, finished: bool) -> None:
        """One pass: whole checkpoints, and what else is there; the folder's manifest if it is finished, last of all.

        Raises:
            DataError: the store refuses.
        """
        system, root = find_system(self._url)
        there = {path.relative_to(self._folder).as_posix() for path in self._folder.rglob("*") if path.is_file()}
        names = [name for name in there if _is_published(name) and (finished or name != MANIFEST)]
        with said_of(self._url, "cannot be published"):
            for name in sorted(names, key=_manifests_last):
                with suppress(FileNotFoundError):  # pruned meanwhile
                    self._send(system, root, name)
            for name in sorted(set(self._sent) - there, key=_manifests_last, reverse=True):
                system.rm_file(f"{root}/{name}")
                del self._sent[name]

    def _send(self, system: Any, root: str, name: str) -> None:
        path = self._folder / name
        in_checkpoint = name.startswith(f"{CHECKPOINTS}/")
        if in_checkpoint and not (self._folder / "/".join(Path(name).parts[:2]) / MANIFEST).is_file():
            return
        stat = path.stat()
        if self._sent.get(name) != (stat.st_size, stat.st_mtime_ns):
            system.put_file(str(path), f"{root}/{name}")
            self._sent[name] = (stat.st_size, stat.st_mtime_ns)


def publish(folder: Path) -> None:
    """Uploads a finished folder, its manifest last; nothing for a folder that is no mirror."""
    if url_of(folder):
        Publisher(folder).publish(finished=True)


@contextmanager
def published(folder: Path, verb: str) -> Iterator[None]:
    """Inside, this process alone writes a folder of a store: it is fetched anew, and published while it grows.

    Raises:
        LockError: another process writes it.
        DataError: the store refuses, at the begin or at the end; between them it is tried again.
    """
    url = url_of(folder)
    if url is None:
        yield
        return
    with _locked(url, verb):
        fetch(folder, anew=True)
        publisher, over = Publisher(folder), threading.Event()
        thread = threading.Thread(target=_publish_until, args=(publisher, over), name="publish", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            publisher.publish(finished=True)


def _publish_until(publisher: Publisher, over: threading.Event) -> None:
    said = ""
    while not over.wait(PUBLISH_S):
        try:
            publisher.publish(finished=False)
        except DataError as error:
            if str(error) != said:
                sys.stderr.write(f"{error} It is tried again; training goes on.\n")
            said = str(error)


@contextmanager
def _locked(url: str, verb: str) -> Iterator[None]:
    """Holds the lock of a folder in a store: an object that is created, renewed and taken over on a condition only."""
    system, root = find_system(url)
    lock = _StoredLock(system, f"{root}/{LOCK}", Holder(verb))
    with said_of(url, "cannot be locked"):
        lock.take(url)
    over = threading.Event()
    thread = threading.Thread(target=lock.renew_until, args=(over,), name="store lock", daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        if lock.lost:
            raise LockError(f"{url} is now written by another process. This one stops and writes no more.") from None
        raise
    finally:
        over.set()
        thread.join()
        lock.release()


class _StoredLock:
    def __init__(self, system: Any, path: str, holder: Holder) -> None:
        self._system, self._path, self._holder = system, path, holder
        self._conditions = "s3" in system.protocol
        self._version, self._beats = "", 0
        self.lost = False

    def take(self, url: str) -> None:
        """Waits for as long as a silent lock may still be somebody's."""
        began, seen = time.monotonic(), ""
        while not self._write():
            holder, version = self._look()
            if holder is None:
                continue
            dead = holder.is_here and not holder.is_alive_here
            if not self._conditions or holder.is_alive_here or (seen and version != seen and not dead):
                hint = "Wait for its end, or stop it."
                if not self._conditions:
                    hint += f" If it is dead, remove {LOCK} there: this store cannot tell."
                raise LockError(f"{url} is being written by {holder}. {hint}")
            if not seen and not dead:
                sys.stderr.write(f"{url} is being written by {holder}; looking whether it still lives.\n")
            seen = version
            if dead or time.monotonic() - began > LEASE_S:
                self._version = version
                continue
            time.sleep(LOOK_S)

    def renew_until(self, over: threading.Event) -> None:
        """Shows every few seconds that the holder lives."""
        while not over.wait(BEAT_S if self._conditions else None):
            with suppress(Exception):  # the store does not answer: nobody else can take the lock meanwhile either
                self.lost = not self._write()
            if self.lost:
                stops.interrupt_now()
                return

    def release(self) -> None:
        """Removes the lock unless it is another's."""
        with suppress(Exception):  # what stays is known to be dead by its process
            holder, _ = self._look()
            if holder and holder.token == self._holder.token:
                self._system.rm_file(self._path)

    def _write(self) -> bool:
        """Whether the lock is ours now: written where there was none, or in place of the version that was seen."""
        self._beats += 1
        content = json.dumps(asdict(self._holder) | {"beats": self._beats}).encode()
        if not self._conditions:
            if self._system.exists(self._path):
                return False
            self._system.pipe_file(self._path, content)
            return True
        bucket, key, _ = self._system.split_path(self._path)
        condition = {"IfMatch": self._version} if self._version else {"IfNoneMatch": "*"}
        try:
            answer = self._system.call_s3("put_object", Bucket=bucket, Key=key, Body=content, **condition)
        except Exception as error:
            if not re.search(_CONDITION, f"{type(error).__name__} {error}"):
                raise
            self._version = ""
            return False
        self._version = answer["ETag"]
        return True

    def _look(self) -> tuple[Holder | None, str]:
        try:
            fields = json.loads(self._system.cat_file(self._path))
            version = str(self._system.info(self._path).get("ETag", ""))
        except FileNotFoundError:
            return None, ""
        fields.pop("beats")
        return Holder(**fields), version


def _is_published(name: str) -> bool:
    first = name.partition("/")[0]
    return bool(name) and not any(part.startswith(".") for part in Path(name).parts) and first != "ray"


def _manifests_last(name: str) -> tuple[bool, bool, str]:
    return name == MANIFEST, name.endswith(f"/{MANIFEST}"), name
