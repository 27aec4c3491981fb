"""One writer a folder of a store: a lock object that is created, renewed and taken over by conditional writes."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict

from xalign_ray.errors import LockError
from xalign_ray.work import stops
from xalign_ray.work.locks import BEAT_S, LEASE_S, LOCK, LOOK_S, Holder
from xalign_ray.work.storage import find_system, said_of

_NOT_DONE = re.compile(r"(?i)precondition|pre-condition|412|conditionalrequestconflict|409")  # a refused write's words


@contextmanager
def hold_stored(url: str, verb: str, lease_s: float = LEASE_S, beat_s: float = BEAT_S) -> Iterator[StoredLock]:
    """Makes this process the only one that writes a folder of a store while it lasts.

    Args:
        url: of the folder.
        verb: what the holder does, for those who find the folder locked.
        lease_s: a lock that was not renewed for so long is taken over, where the store writes on conditions.
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
    """

    def __init__(self, url: str, verb: str, lease_s: float, beat_s: float) -> None:
        self._system, root = find_system(url)
        self._url, self._path = url, f"{root}/{LOCK}"
        self._holder = Holder(verb)
        self._lease_s, self._beat_s = lease_s, beat_s
        self._conditional = "s3" in self._system.protocol
        self._version, self._beats, self._renewed = "", 0, 0.0
        self._writing = threading.Lock()
        self.lost = False

    @property
    def lost_sentence(self) -> str:
        """What to say when the lock is another's, or gone."""
        return (
            f"{self._url} is no longer locked by this process: it was silent for too long, or the lock was removed. It "
            "stops here and writes nothing more there."
        )

    def take(self) -> None:
        """Waits for as long as a silent lock may still be somebody's.

        Raises:
            LockError: it is somebody's.
        """
        began, seen = time.monotonic(), ""
        while not self._write():
            holder, version = self._look()
            if holder is None:
                continue
            is_dead = holder.is_here and not holder.is_alive_here
            if not is_dead and (not self._conditional or holder.is_alive_here or seen not in ("", version)):
                hint = "Wait for its end, or stop it."
                if not self._conditional and not holder.is_alive_here:
                    hint += f" If it is dead, remove {LOCK} there: this store has no conditional writes to find it out."
                raise LockError(f"{self._url} is being written by {holder}. {hint}")
            if not seen and not is_dead:
                sys.stderr.write(f"{self._url} is being written by {holder}; looking whether it still lives.\n")
            seen = version
            if is_dead or time.monotonic() - began > self._lease_s:
                self._version = version  # written over this one only: of two that try, one succeeds
            else:
                time.sleep(min(LOOK_S, self._beat_s))

    def check(self) -> None:
        """Call it before each write to the folder: a process that slept for long learns here that it lost the lock.

        Raises:
            LockError: it is lost.
        """
        if not self.lost and self._conditional and time.monotonic() - self._renewed > 2 * self._beat_s:
            self._renew()
        if self.lost:
            raise LockError(self.lost_sentence)

    def renew_until(self, over: threading.Event) -> None:
        """Shows every few seconds that the holder lives; interrupts it when the lock is lost."""
        while not self.lost and not over.wait(self._beat_s if self._conditional else None):
            with suppress(Exception):  # the store does not answer: nobody else can take the lock meanwhile either
                self._renew()

    def release(self) -> None:
        """Removes the lock unless it is another's."""
        with suppress(Exception):  # one that stays is known to be dead: by its process, or after the lease
            holder, _ = self._look()
            if holder and holder.token == self._holder.token:
                self._system.rm_file(self._path)

    def _renew(self) -> None:
        with self._writing:
            if not self.lost and not self._write():
                self.lost = True
                stops.interrupt_now()

    def _write(self) -> bool:
        """Whether the lock is ours now: written where there was none, or in place of the version that was seen."""
        self._beats += 1
        content = json.dumps(asdict(self._holder) | {"beats": self._beats}).encode()
        if self._conditional:
            return self._write_on_condition(content)
        if not self._version and self._system.exists(self._path):
            return False
        self._system.pipe_file(self._path, content)
        self._renewed = time.monotonic()
        return True

    def _write_on_condition(self, content: bytes) -> bool:
        bucket, key, _ = self._system.split_path(self._path)
        condition = {"IfMatch": self._version} if self._version else {"IfNoneMatch": "*"}
        began = time.monotonic()
        try:
            answer = self._system.call_s3("put_object", Bucket=bucket, Key=key, Body=content, **condition)
            self._version = answer["ETag"]
        except Exception as error:
            if not isinstance(error, FileNotFoundError | FileExistsError) and not _NOT_DONE.search(
                f"{type(error).__name__} {error}"
            ):
                raise
            holder, version = self._look()
            ours = holder is not None and holder.token == self._holder.token  # done, but the answer was lost
            self._version = version if ours else ""
            if not ours:
                return False
        self._renewed = began
        return True

    def _look(self) -> tuple[Holder | None, str]:
        """The holder, and a version that is not newer than what was read: a write over it fails if it is older."""
        try:
            version = str(self._system.info(self._path).get("ETag", "any"))
            fields = json.loads(self._system.cat_file(self._path))
        except FileNotFoundError:
            return None, ""
        fields.pop("beats")
        return Holder(**fields), version
