"""One writer a folder: a lock file that its holder keeps fresh, or a lock object of a store, written conditionally.

The file is created exclusively and touched every few seconds. Whoever wants it watches it for a whole lease by its own
clock, so hosts need not agree on the time. Only the holder of the lock on a lock (`.lock.<hash of its content>`) may
remove or replace it: so a fresh lock is never taken for the expired one that stood there a moment before.

`SoftFileLease` of filelock (4.3.1) is of the same kind. It is not taken: to it a killed process that nobody has waited
for is alive until its lease ends, and its file names neither the verb nor the time.
"""

from __future__ import annotations

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
    """A lock that is held; `waited`: whether another process held it before."""

    def __init__(self, path: Path, content: bytes, file: int, beat_s: float, waited: bool) -> None:
        self.waited = waited
        self.token = json.loads(content)["token"]
        self.lost = False
        self._path = path
        self._content = content
        self._file = file
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, args=(beat_s,), name="lock", daemon=True)
        self._thread.start()

    def _beat(self, beat_s: float) -> None:
        while not self._over.wait(beat_s):
            with suppress(OSError):
                os.utime(self._file)  # of the file that we made, whatever has its name now
            try:
                self.lost = _read(self._path) != self._content
            except OSError:  # the disk does not answer; nobody else can take the lock meanwhile either
                continue
            if self.lost:
                process.interrupt_now()
                return

    def release(self) -> None:
        """Frees the folder, unless it has become another's."""
        self._over.set()
        self._thread.join()
        os.close(self._file)
        mark = _mark(self._path, self._content)
        with suppress(OSError):
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            if _read(self._path) == self._content:
                self._path.unlink()
            mark.unlink()


@contextmanager
def hold(
    folder: Path, verb: str, waits: bool = False, lease_s: float = LEASE_S, beat_s: float = BEAT_S
) -> Iterator[Lock]:
    """Makes this process the only one that writes a folder while it lasts.

    Args:
        folder: made if it is not there.
        verb: the holder's verb, shown to those who find the folder locked.
        waits: wait for another holder to end, and name it once; without it the folder is refused.

    Raises:
        LockError: another process holds it, has taken it over, or the folder cannot be written.
    """
    _refuse_url(folder)
    path = folder / LOCK
    content = json.dumps(asdict(Holder(verb))).encode()
    watch, reported = _Watch(lease_s), False
    while isinstance(lock_file := _take(path, content, watch), bytes):
        holder = _holder_of(lock_file)
        if not waits and (watch.beats or (holder is not None and holder.is_alive_here)):
            raise LockError(
                f"{folder} is being written by {holder or 'another process'}. Wait for its end, or stop it."
            )
        if not reported:
            why = "it is waited for" if waits else "looking whether it still lives"
            sys.stderr.write(f"{folder} is being written by {holder or 'another process'}; {why}.\n")
            reported = True
        time.sleep(LOOK_S)
    lock = Lock(path, content, lock_file, beat_s, reported)
    _remove_marks(path, content)
    _remove_leftovers(path, lease_s)
    resolved = folder.resolve()  # now: links to it may change meanwhile
    _held[resolved] = threading.get_ident()
    try:
        with written_in(folder):
            yield lock
    except BaseException:
        if lock.lost:
            raise LockError(lost_sentence(folder)) from None
        raise
    finally:
        del _held[resolved]
        _remove_leftovers(path, lease_s)
        lock.release()


def is_held(folder: Path) -> bool:
    """Whether this thread holds the lock on a folder."""
    return _held.get(folder.resolve()) == threading.get_ident()


def is_locked(folder: Path) -> bool:
    """Whether a folder has a lock, by whichever process, whose holder is not known to be dead."""
    content = _read(folder / LOCK)
    holder = _holder_of(content or b"")
    return content is not None and (holder is None or holder.is_alive_here or not holder.is_here)


def check_writable(folder: Path) -> None:
    """Finds out whether a folder, there or not yet, can be written.

    Raises:
        LockError: it cannot, in a sentence.
    """
    _refuse_url(folder)
    path = unfinished(folder / "probe")
    if (file := _create(path, b"")) is not None:
        os.close(file)
        path.unlink(missing_ok=True)


def _refuse_url(folder: Path) -> None:
    if folder.parts and folder.parts[0].endswith(":"):  # a Path of s3://bucket
        raise LockError(
            f"{folder.parts[0]}//{'/'.join(folder.parts[1:])} is a URL, and this verb writes to a folder on a disk: "
            "name one that all nodes share, and copy it to the store afterwards."
        )


def holds(folder: Path, token: str) -> bool:
    """Whether the lock on a folder is still the one with this token; for those who write on the holder's behalf."""
    holder = _holder_of(_read(folder / LOCK) or b"")
    return holder is not None and holder.token == token


def lost_sentence(folder: Path) -> str:
    """The error message for a lock that is another's, or gone."""
    holder = _holder_of(_read(folder / LOCK) or b"")
    return (
        f"{folder} is {f'now written by {holder}' if holder else 'no longer locked'}: this process was silent for too "
        "long, or its lock was removed. It stops here and writes no more."
    )


class _Watch:
    """How long each lock has looked the same to this process; `beats` once one of them was seen to be touched."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._seen: dict[Path, tuple[bytes, int, float]] = {}
        self.beats = False

    def is_over(self, path: Path, content: bytes, touched: int) -> bool:
        holder = _holder_of(content)
        if holder is not None and holder.is_here and not holder.is_alive_here:
            return True
        now = time.monotonic()
        before = self._seen.get(path)
        if before is None or before[:2] != (content, touched):
            self.beats = self.beats or (before is not None and before[0] == content)
            self._seen[path] = (content, touched, now)
            return False
        return now - before[2] > self._lease_s


def _take(path: Path, content: bytes, watch: _Watch) -> int | bytes:
    """The open lock file if it is ours now, else the content of the lock in the way."""
    while True:
        if (file := _create(path, content)) is not None:
            return file
        try:
            with path.open("rb") as lock:
                content_there, touched = lock.read(), os.fstat(lock.fileno()).st_mtime_ns
        except FileNotFoundError:
            continue
        if not watch.is_over(path, content_there, touched):
            return content_there
        mark = _mark(path, content_there)
        file = _take(mark, content, watch)
        if isinstance(file, bytes):
            return file
        if _read(path) == content_there:
            with suppress(FileNotFoundError):
                os.replace(mark, path)
            if _read(path) == content:
                return file
        else:
            mark.unlink(missing_ok=True)
        os.close(file)


def _create(path: Path, content: bytes) -> int | None:
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
            return None
        raise LockError(f"{path.parent} cannot be written: it is not a folder. Name another output.") from None
    except OSError as error:
        raise LockError(f"{path.parent} cannot be written ({error.strerror}). Name another output.") from None
    if _read(path) == content:
        return file
    os.close(file)
    return None


def _mark(path: Path, content: bytes) -> Path:
    """The lock on a lock."""
    return path.with_name(f"{path.name}.{hashlib.sha256(content).hexdigest()[:16]}")


def _remove_leftovers(path: Path, lease_s: float) -> None:
    """Removes what dead writers have left in a locked folder, by the clock of its disk."""
    with suppress(FileNotFoundError):  # the lock was removed: the folder may be another's
        remove_unfinished(path.parent, path.stat().st_mtime - lease_s)


def _remove_marks(path: Path, content: bytes) -> None:
    """Removes marks that killed processes have left: a mark on a lock that is gone has no meaning."""
    our_mark = _mark(path, content).name
    for mark in path.parent.glob(f"{path.name}.*"):
        if not mark.name.startswith(our_mark):
            mark.unlink(missing_ok=True)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _holder_of(content: bytes) -> Holder | None:
    """None where the content is torn or no lock of ours."""
    try:
        return Holder(**json.loads(content))
    except (ValueError, TypeError):
        return None


# One writer a folder of a store: a lock object that is created, renewed and taken over by conditional writes.

_REFUSED = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}  # a store's codes of conditions not met


@contextmanager
def hold_stored(url: str, verb: str, lease_s: float = LEASE_S, beat_s: float = BEAT_S) -> Iterator[StoredLock]:
    """Makes this process the only one that writes a folder of a store while it lasts.

    Args:
        url: of the folder.
        verb: the holder's verb, shown to those who find the folder locked.
        lease_s: a lock that was not renewed for so long is taken over, in S3, which writes on conditions.
        beat_s: between two renewals.

    Raises:
        LockError: another process holds it, or has taken it over.
        DataError: the store refuses.
    """
    lock = StoredLock(url, verb, lease_s, beat_s)
    with said_of(url, "cannot be locked"):
        lock.take()
    over = threading.Event()
    thread = threading.Thread(target=lock.renew_until, args=(over,), name="store lock", daemon=True)
    thread.start()
    try:
        yield lock
    except BaseException:
        if lock.lost:
            raise LockError(lock.lost_sentence) from None
        raise
    finally:
        over.set()
        thread.join()
        lock.release()


class StoredLock:
    """A lock on a folder of a store.

    Attributes:
        lost: whether it has become another's, or was removed.
        lost_sentence: the error message for that.
    """

    def __init__(self, url: str, verb: str, lease_s: float, beat_s: float) -> None:
        self._system, root = find_system(url)
        self._url, self._path = url, f"{root}/{LOCK}"
        self._holder, self._lease_s, self._beat_s = Holder(verb), lease_s, beat_s
        self._is_s3 = "s3" in self._system.protocol
        self._beats, self._renewed = 0, 0.0
        self._renewing = threading.Lock()
        self.lost = False
        self.lost_sentence = (
            f"{url} is no longer locked by this process: it was silent for too long, or the lock was removed. It stops "
            "here and writes nothing more there."
        )

    def take(self) -> None:
        """Waits for as long as a silent lock may still be somebody's.

        Raises:
            LockError: it is somebody's.
        """
        began, seen, is_over_another = time.monotonic(), "", False
        while True:
            holder, version = self._look()
            if holder is None:
                if not self._write(""):
                    time.sleep(LOOK_S)
                continue
            if self._is_ours(holder):
                if not is_over_another:
                    return
                is_over_another = False
                time.sleep(LOOK_S)  # in a store that ignores conditions the last of two has the lock: look again
                continue
            is_dead = holder.is_here and not holder.is_alive_here
            if not is_dead and (not self._is_s3 or holder.is_alive_here or seen not in ("", version)):
                hint = "Wait for its end, or stop it."
                if not self._is_s3 and not holder.is_alive_here:
                    hint += f" If it is dead, remove {LOCK} there: this store has no conditional writes to find it out."
                raise LockError(f"{self._url} is being written by {holder}. {hint}")
            if not seen and not is_dead:
                sys.stderr.write(f"{self._url} is being written by {holder}; looking whether it still lives.\n")
            seen = version
            if is_dead or time.monotonic() - began > self._lease_s:
                is_over_another = self._write(version)  # over this one only: of two that try, one succeeds
                if not is_over_another:
                    time.sleep(LOOK_S)
            else:
                time.sleep(min(LOOK_S, self._beat_s))

    def check(self) -> None:
        """Call it before each write to the folder: a process that slept for long learns here that it lost the lock.

        Raises:
            LockError: it is lost.
        """
        if _awake_or_not() - self._renewed > 2 * self._beat_s:
            self._renew()
        if self.lost:
            raise LockError(self.lost_sentence)

    def renew_until(self, over: threading.Event) -> None:
        """Shows every few seconds that the holder lives; interrupts it when the lock is lost."""
        while not self.lost and not over.wait(self._beat_s):
            with suppress(Exception):  # the store does not answer: nobody else can take the lock meanwhile either
                self._renew()

    def release(self) -> None:
        """Removes the lock unless it is another's."""
        with suppress(Exception):  # one that stays is known to be dead: by its process, or after the lease
            holder, _ = self._look()
            if self._is_ours(holder):
                self._system.rm_file(self._path)

    def _renew(self) -> None:
        with self._renewing:
            holder, version = self._look()
            if self._is_ours(holder) and not self._write(version):
                holder, _ = self._look()  # another was faster, or ours was written and the answer to it was lost
            if not self._is_ours(holder) and not self.lost:
                self.lost = True
                process.interrupt_now()

    def _is_ours(self, holder: Holder | None) -> bool:
        return holder is not None and holder.token == self._holder.token

    def _write(self, version: str) -> bool:
        """Writes the lock where there is none, or in place of a version; False if the store says that it is not so."""
        self._beats += 1
        began, content = _awake_or_not(), json.dumps(asdict(self._holder) | {"beats": self._beats}).encode()
        try:
            if self._is_s3:
                bucket, key, _ = self._system.split_path(self._path)
                condition = {"IfMatch": version} if version else {"IfNoneMatch": "*"}
                self._system.call_s3("put_object", Bucket=bucket, Key=key, Body=content, **condition)
            else:
                self._system.pipe_file(self._path, content)
        except Exception as error:
            if not _is_refusal(error, version):
                raise
            return False
        self._renewed = began
        return True

    def _look(self) -> tuple[Holder | None, str]:
        """The holder, and a version that is at most as new: a conditional write over an older one fails."""
        try:
            version = str(self._system.info(self._path).get("ETag", "any"))
            fields = json.loads(self._system.cat_file(self._path))
        except FileNotFoundError:
            return None, ""
        fields.pop("beats", None)  # a lock of a disk, copied here with its folder, has none
        return Holder(**fields), version


def _is_refusal(error: Exception, version: str) -> bool:
    """Whether the condition of a write was not met; a missing object is such where a version was asked for."""
    if isinstance(error, FileExistsError) or (version and isinstance(error, FileNotFoundError)):
        return True
    response = getattr(error.__cause__ or error, "response", None)  # of botocore, which s3fs makes a plain error of
    return isinstance(response, dict) and str(response.get("Error", {}).get("Code")) in _REFUSED


def _awake_or_not() -> float:
    """Seconds of a clock that goes on while the machine sleeps, where the system has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
