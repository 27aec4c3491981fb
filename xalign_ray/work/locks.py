"""One writer a folder: a lock that its holder keeps fresh, a file on a disk or an object of a store

It is created exclusively and renewed every few seconds. Whoever wants it watches it for a whole lease by its own clock,
so hosts need not agree on the time. A fresh lock is never taken for the expired one that stood there a moment before:
in a store it is replaced by a conditional write, and on a disk only by the holder of the lock on a lock
(`.lock.<hash of its content>`).

`SoftFileLease` of filelock (4.3.1) is of the same kind. It is not taken: to it a killed process that nobody has waited
for is alive until its lease ends, and its file names neither the verb nor the time.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from xalign_ray.errors import LockError, written_in
from xalign_ray.work import process
from xalign_ray.work.artifacts import HOST, LOCK, MACHINE, process_start, remove_unfinished, unfinished
from xalign_ray.work.storage import find_system, said_of

LEASE_S = 60.0  # a lock is stale when it was not touched for this long; longer than any call holds the GIL
BEAT_S = 5.0
LOOK_S = 0.2
_REFUSED = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}  # a store's codes of conditions not met

_held: dict[Path, int] = {}  # the folders that this process holds, and the thread that does


@dataclass(frozen=True)
class Holder:
    """Who writes a folder, and since when."""

    verb: str
    host: str = HOST
    machine: str = MACHINE
    pid: int = field(default_factory=os.getpid)
    started: str = field(default_factory=lambda: process_start(os.getpid()))
    since: str = field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M:%S %Z"))
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __str__(self) -> str:
        return f"{self.verb} on {self.host} (process {self.pid}) since {self.since}"

    @property
    def is_here(self) -> bool:
        """Whether its processes are seen from this one."""
        return bool(self.started) and self.machine == MACHINE

    @property
    def is_alive_here(self) -> bool:
        """Whether its very process lives on this machine."""
        return self.is_here and process_start(self.pid) == self.started


class Lock:
    """A lock on a folder of a disk or a store.

    Attributes:
        token: names its holder.
        waited: whether another process held it before.
        lost: whether it has become another's, or was removed.
    """

    def __init__(self, place: _File | _Object, folder: Path | str, verb: str, lease_s: float, beat_s: float) -> None:
        """`folder` is shown to those who find it locked."""
        holder = Holder(verb)
        self.place, self.token, self.waited, self.lost = place, holder.token, False, False
        self._folder, self._content = folder, json.dumps(asdict(holder)).encode()
        self._lease_s, self._beat_s, self._renewed = lease_s, beat_s, _awake_or_not()
        self._over, self._renewing = threading.Event(), threading.Lock()

    def take(self, waits: bool) -> None:
        """Waits for as long as a silent lock may still be somebody's, or with `waits` until it is free.

        Raises:
            LockError: it is somebody's.
        """
        watch = _Watch(self._lease_s)
        while (content := _take(self.place, self._content, watch)) is not None:
            holder = _holder_of(content)
            is_alive = watch.beats or (holder is not None and holder.is_alive_here)
            by = f"{self._folder} is being written by {holder or 'another process'}"
            if not waits and (is_alive or not self.place.expires):
                hint = "" if is_alive else self.place.hint
                raise LockError(f"{by}. Wait for its end, or stop it.{hint}")
            if not self.waited:
                why = "it is waited for" if waits else "looking whether it still lives"
                sys.stderr.write(f"{by}; {why}.\n")
                self.waited = True
            time.sleep(LOOK_S)
        self._renewed = _awake_or_not()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Inside, a thread keeps the lock fresh; at the end it is removed, unless it is another's."""
        thread = threading.Thread(target=self._beat, name="lock", daemon=True)
        thread.start()
        try:
            yield
        except BaseException:
            if self.lost:
                raise self._lost() from None
            raise
        finally:
            self._over.set()
            thread.join()
            with suppress(Exception):  # one that stays is known to be dead: by its process, or after the lease
                self.place.remove(self._content)
            self.place.close()

    def check(self) -> None:
        """Call it before each write to a store: a process that slept for long learns here that it lost the lock.

        Raises:
            LockError: it is lost.
        """
        if _awake_or_not() - self._renewed > 2 * self._beat_s:
            self._renew()
        if self.lost:
            raise self._lost()

    def _beat(self) -> None:
        while not self.lost and not self._over.wait(self._beat_s):
            with suppress(Exception):  # the place does not answer: nobody else can take the lock meanwhile either
                self._renew()

    def _renew(self) -> None:
        with self._renewing:
            began, (there, version) = _awake_or_not(), self.place.look()
            if _are_equal(there, self._content) and not self.place.renew(self._content, version):
                there, _ = self.place.look()  # another was faster, or ours was written and the answer to it was lost
            if _are_equal(there, self._content):
                self._renewed = began
            elif not self.lost:
                self.lost = True
                process.interrupt_now()

    def _lost(self) -> LockError:
        there = None
        with suppress(Exception):
            there, _ = self.place.look()
        return LockError(lost_sentence(self._folder, there))


@contextmanager
def hold(
    folder: Path, verb: str, waits: bool = False, lease_s: float = LEASE_S, beat_s: float = BEAT_S
) -> Iterator[Lock]:
    """Makes this process the only one that writes a folder while it lasts.

    Args:
        folder: made if it is not there.
        verb: the holder's verb, shown to those who find the folder locked.
        waits: wait for another holder to end, and name it once; without it the folder is refused.
        lease_s: a lock that was not renewed for so long is taken over.
        beat_s: between two renewals.

    Raises:
        LockError: another process holds it, has taken it over, or the folder cannot be written.
    """
    _refuse_url(folder)
    place = _File(folder / LOCK)
    lock = Lock(place, folder, verb, lease_s, beat_s)
    lock.take(waits)
    resolved = folder.resolve()  # now: links to it may change meanwhile
    _held[resolved] = threading.get_ident()
    with lock.kept(), written_in(folder):
        place.remove_marks()
        try:
            _remove_leftovers(place.path, lease_s)
            yield lock
        finally:
            del _held[resolved]
            _remove_leftovers(place.path, lease_s)


@contextmanager
def hold_stored(url: str, verb: str, lease_s: float = LEASE_S, beat_s: float = BEAT_S) -> Iterator[Lock]:
    """As `hold`, of a folder of a store; a lock is taken over in S3, which writes on conditions.

    Raises:
        LockError: another process holds it, or has taken it over.
        DataError: the store refuses.
    """
    lock = Lock(_Object(url), url, verb, lease_s, beat_s)
    with said_of(url, "cannot be locked"):
        lock.take(waits=False)
    with lock.kept():
        yield lock


def is_held(folder: Path) -> bool:
    """Whether this thread holds the lock on a folder."""
    return _held.get(folder.resolve()) == threading.get_ident()


def is_locked(folder: Path) -> bool:
    """Whether a folder has a lock, by whichever process, whose holder is not known to be dead."""
    content, _ = _File(folder / LOCK).look()
    holder = _holder_of(content)
    return content is not None and (holder is None or holder.is_alive_here or not holder.is_here)


def check_writable(folder: Path) -> None:
    """Finds out whether a folder, there or not yet, can be written.

    Raises:
        LockError: it cannot, in a sentence.
    """
    _refuse_url(folder)
    path = unfinished(folder / "probe")
    os.close(_create(path, b""))
    path.unlink(missing_ok=True)


def _refuse_url(folder: Path) -> None:
    if folder.parts and folder.parts[0].endswith(":"):  # a Path of s3://bucket
        raise LockError(
            f"{folder.parts[0]}//{'/'.join(folder.parts[1:])} is a URL, and this verb writes to a folder on a disk: "
            "name one that all nodes share, and copy it to the store afterwards."
        )


def holds(folder: Path, token: str) -> bool:
    """Whether the lock on a folder is still the one with this token; for those who write on the holder's behalf."""
    holder = _holder_of(_File(folder / LOCK).look()[0])
    return holder is not None and holder.token == token


def lost_sentence(folder: Path | str, there: bytes | None = None) -> str:
    """The error message for a lock that is another's, or gone; `there`: the lock that is there now, if it is known."""
    if there is None and isinstance(folder, Path):
        there, _ = _File(folder / LOCK).look()
    holder = _holder_of(there)
    return (
        f"{folder} is {f'now written by {holder}' if holder else 'no longer locked'}: this process was silent for too "
        "long, or its lock was removed. It stops here and writes no more."
    )


class _Watch:
    """How long each lock has looked the same to this process; `beats` once one of them was seen to be renewed."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._seen: dict[str, tuple[bytes, str, float]] = {}
        self.beats = False

    def is_over(self, place: _File | _Object, content: bytes, version: str) -> bool:
        holder = _holder_of(content)
        if holder is not None and holder.is_here and not holder.is_alive_here:
            return True
        now = time.monotonic()
        before = self._seen.get(place.name)
        if before is None or before[:2] != (content, version):
            self.beats = self.beats or (before is not None and before[0] == content)
            self._seen[place.name] = (content, version, now)
            return False
        return place.expires and now - before[2] > self._lease_s


def _take(place: _File | _Object, content: bytes, watch: _Watch) -> bytes | None:
    """None if the lock is ours now, else the content of the lock in the way."""
    while True:
        there, version = place.look()
        if there is None:
            place.create(content)  # one of several succeeds: the next look shows which
        elif _are_equal(there, content):
            return None
        elif not watch.is_over(place, there, version):
            return there
        elif (in_the_way := place.replace(content, there, version, watch)) is not None:
            return in_the_way


class _File:
    """A lock file. Its holder touches the file that it made, whatever has the name now."""

    expires, hint = True, ""

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.file = path, str(path), -1

    def look(self) -> tuple[bytes | None, str]:
        """The content, None where there is none, and a version that each renewal changes."""
        try:
            with self.path.open("rb") as lock:
                return lock.read(), str(os.fstat(lock.fileno()).st_mtime_ns)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
                raise
            return None, ""

    def create(self, content: bytes) -> None:
        """Makes the file, unless another does."""
        self.close()
        self.file = _create(self.path, content)

    def replace(self, content: bytes, there: bytes, version: str, watch: _Watch) -> bytes | None:  # noqa: ARG002
        """Puts ours in the place of an expired one, if that is still there; gives a lock that is in the way."""
        mark = _File(self._mark(there))
        if (in_the_way := _take(mark, content, watch)) is not None:
            return in_the_way
        self.close()
        self.file = mark.file
        if self.look()[0] == there:
            with suppress(FileNotFoundError):
                os.replace(mark.path, self.path)
        else:
            mark.path.unlink(missing_ok=True)
        return None

    def renew(self, content: bytes, version: str) -> bool:  # noqa: ARG002
        """Shows that the holder lives."""
        os.utime(self.file)
        return True

    def remove(self, content: bytes) -> None:
        """Removes the file if it is ours."""
        mark = self._mark(content)
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        if self.look()[0] == content:
            self.path.unlink()
        mark.unlink()

    def close(self) -> None:
        """Closes the file."""
        if self.file >= 0:
            os.close(self.file)
        self.file = -1

    def remove_marks(self) -> None:
        """Removes marks that killed processes have left: a mark on a lock that is gone has no meaning."""
        our_mark = self._mark(self.look()[0] or b"").name
        for mark in self.path.parent.glob(f"{self.path.name}.*"):
            if not mark.name.startswith(our_mark):
                mark.unlink(missing_ok=True)

    def _mark(self, content: bytes) -> Path:
        """The lock on a lock."""
        return self.path.with_name(f"{self.path.name}.{hashlib.sha256(content).hexdigest()[:16]}")


class _Object:
    """A lock object of a store, written on conditions; where a store has none, a lock does not expire."""

    hint = f" If it is dead, remove {LOCK} there: this store has no conditional writes to find it out."

    def __init__(self, url: str) -> None:
        self._system, root = find_system(url)
        self.name, self.beats = f"{root}/{LOCK}", 0
        self.expires = "s3" in self._system.protocol

    def look(self) -> tuple[bytes | None, str]:
        """The content, None where there is none, and a version that is at most as new."""
        try:
            version = str(self._system.info(self.name).get("ETag", "any"))
            fields = json.loads(self._system.cat_file(self.name))
        except FileNotFoundError:
            return None, ""
        fields.pop("beats", None)  # a lock of a disk, copied here with its folder, has none
        return json.dumps(fields).encode(), version

    def create(self, content: bytes) -> None:
        """Writes the object where there is none."""
        self.renew(content, "")

    def replace(self, content: bytes, there: bytes, version: str, watch: _Watch) -> None:  # noqa: ARG002
        """Writes over this version only: of two that try, one succeeds."""
        self.renew(content, version)
        if not self.expires:
            time.sleep(LOOK_S)  # without conditions the last of two has the lock: look again

    def renew(self, content: bytes, version: str) -> bool:
        """Writes the lock in place of a version, none if empty; False if that condition is not met."""
        self.beats += 1
        body = json.dumps(json.loads(content) | {"beats": self.beats}).encode()
        try:
            if self.expires:
                bucket, key, _ = self._system.split_path(self.name)
                condition = {"IfMatch": version} if version else {"IfNoneMatch": "*"}
                self._system.call_s3("put_object", Bucket=bucket, Key=key, Body=body, **condition)
            else:
                self._system.pipe_file(self.name, body)
        except Exception as error:
            if not _is_refusal(error, version):
                raise
            return False
        return True

    def remove(self, content: bytes) -> None:
        """Removes the object if it is ours."""
        if _are_equal(self.look()[0], content):
            self._system.rm_file(self.name)

    def close(self) -> None:
        """Nothing is open."""


def _create(path: Path, content: bytes) -> int:
    """The open file, -1 where there is one already."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
        try:
            os.write(file, content)
            os.fsync(file)
        except OSError:  # an empty lock would keep everybody out for a lease
            os.close(file)
            path.unlink(missing_ok=True)
            raise
    except FileExistsError:
        if path.parent.is_dir():
            return -1
        raise LockError(f"{path.parent} cannot be written: it is not a folder. Name another output.") from None
    except OSError as error:
        raise LockError(f"{path.parent} cannot be written ({error.strerror}). Name another output.") from None
    return file


def _remove_leftovers(path: Path, lease_s: float) -> None:
    """Removes what dead writers have left in a locked folder, by the clock of its disk."""
    with suppress(FileNotFoundError):  # the lock was removed: the folder may be another's
        remove_unfinished(path.parent, path.stat().st_mtime - lease_s)


def _holder_of(content: bytes | None) -> Holder | None:
    """None where there is no content, or it is torn or no lock of ours."""
    try:
        return Holder(**json.loads(content or b""))
    except (ValueError, TypeError):
        return None


def _are_equal(content: bytes | None, other: bytes) -> bool:
    """Whether two locks are one holder's."""
    holder, other_holder = _holder_of(content), _holder_of(other)
    return holder is not None and other_holder is not None and holder.token == other_holder.token


def _is_refusal(error: Exception, version: str) -> bool:
    """Whether the condition of a write was not met; a missing object is such where a version was asked for."""
    if isinstance(error, FileExistsError) or (version and isinstance(error, FileNotFoundError)):
        return True
    response = getattr(error.__cause__ or error, "response", None)  # of botocore, which s3fs makes a plain error of
    return isinstance(response, dict) and str(response.get("Error", {}).get("Code")) in _REFUSED


def _awake_or_not() -> float:
    """Seconds of a clock that goes on while the machine sleeps, where the system has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
