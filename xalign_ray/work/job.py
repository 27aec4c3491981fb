"""One way to make a folder: its lock, its mirror in a store, its event log and who follows it, its manifest last."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from xalign_ray.errors import LockError
from xalign_ray.track.destinations import Track
from xalign_ray.track.events import Event, EventLog, EventReader, last_attempt
from xalign_ray.track.follower import Follower
from xalign_ray.work import mirror, process
from xalign_ray.work.artifacts import MANIFEST, write_manifest
from xalign_ray.work.locks import hold, holds, is_held, lost_sentence
from xalign_ray.work.run_folder import CARD, EVENT_LOG, STUDY, RunFolder
from xalign_ray.work.status_line import say

POLL_S = 0.5  # how often the log is read for those who follow it
FINISHED = "finished"

Upload = Literal["while it grows", "once finished", "its card"]


class Shown(Protocol):
    """A consumer of the events of a running job: a progress line, gauges."""

    def show(self, event: Event, /) -> None: ...
    def close(self) -> None: ...


@dataclass
class Job:
    """A folder that is being made, as each process that works on it sees it.

    Attributes:
        folder: on a disk that all of them share.
        identity: fields of the start event.
        token: of the lock; empty where a launcher has none to pass on.
        trust: whether the files of a checkpoint may run code.
        stop_asked: name of the signal that asked the job to stop, empty if none did.
        on_checkpoint: called on each worker after each checkpoint, with the step and its metrics.
    """

    folder: Path
    identity: Mapping[str, Any] = field(default_factory=dict)
    token: str = ""
    trust: bool = False
    stop_asked: Callable[[], str] = process.asked
    on_checkpoint: Callable[[int, dict[str, float]], None] | None = None

    @property
    def events(self) -> Path:
        """The event log."""
        return self.folder / EVENT_LOG

    def open_log(self) -> EventLog:
        """The log of a new attempt."""
        return EventLog(self.events, last_attempt(self.events) + 1)

    def is_ours(self) -> bool:
        """Whether the folder is still this job's."""
        return not self.token or holds(self.folder, self.token)

    def lost(self) -> LockError:
        """The error of a job whose folder is another's."""
        return LockError(lost_sentence(self.folder))

    @contextmanager
    def shown(self, *to: Shown) -> Iterator[None]:
        """Inside, a thread passes on events that are appended to the log, by whichever process."""
        reader, over = EventReader(self.events), threading.Event()
        for _ in reader.stream():
            pass  # earlier attempts are history

        def read_on() -> None:
            is_last = False
            while not is_last:
                is_last = over.wait(POLL_S)
                for event in reader.stream():
                    for consumer in to:
                        consumer.show(event)

        thread = threading.Thread(target=read_on, name="tail", daemon=True)
        with ExitStack() as stack:
            for consumer in to:
                stack.enter_context(closing(consumer))
            thread.start()
            try:
                yield
            finally:
                over.set()
                thread.join()


class OpenJob(Job):
    """A job in the process that holds its lock.

    Attributes:
        log: of this attempt; None where a worker writes it, or nobody.
        waited: whether another process has written the folder just before.
        metrics: of the end event, beside its seconds.
    """

    log: EventLog | None = None
    waited = False

    def __init__(self, folder: Path, identity: Mapping[str, Any], token: str, stack: ExitStack) -> None:
        super().__init__(folder, identity, token)
        self._stack = stack
        self.metrics: Mapping[str, float] = {}
        self._manifest: dict[str, Any] | None = None
        self._card: Callable[[Path], None] | None = None

    def follow(self, *tracks: Track | None) -> None:
        """Shows the job in trackers while it lasts, from its first event on; a thread for each holds up nobody."""
        for track in filter(None, tracks):
            follower = Follower(self.folder, track.uri, track.experiment)
            self._stack.callback(_say_if_any, follower.close)

    def finish(
        self,
        manifest: Mapping[str, Any] | None = None,
        card: Callable[[Path], None] | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Sets the last things to write: metrics of the end event, the manifest, and then the model card, by `card`."""
        self.metrics = metrics or {}
        self._manifest = None if manifest is None else dict(manifest)
        self._card = card

    def close(self, upload: Upload | None) -> None:
        """Writes what `finish` has named."""
        if self._manifest is not None:
            write_manifest(self.folder, self._manifest)
        if self._card:
            self._card(self.folder)
        if self._card and upload == "its card":
            mirror.publish_file(RunFolder(self.folder).export / CARD)

    @property
    def is_finished(self) -> bool:
        """Whether there is a manifest to write."""
        return self._manifest is not None


@contextmanager
def open_job(
    folder: Path,
    kind: str,
    identity: Mapping[str, Any] | None = None,
    *,
    waits: bool = True,
    with_run: bool = False,
    upload: Upload | None = "while it grows",
    keep: int | None = None,
) -> Iterator[OpenJob]:
    """Makes a folder: inside, this process alone writes it. Nothing is taken again that this thread holds already.

    Args:
        folder: made if it is not there.
        kind: the verb, for those who find the folder locked.
        identity: fields of the start event; without it the job writes no log.
        waits: wait for another writer, and name it once; without it the folder is refused.
        with_run: lock the run or study that the folder lies in as well: its writers write the folder too.
        upload: what goes to the store of a folder that mirrors one, and when; None: another job uploads it.
        keep: number of checkpoints that stay in the store; all if None. One that is removed here is removed there.

    Raises:
        LockError: another process writes the folder, or has taken it over.
        DataError: the store refuses.
    """
    home = _run_around(folder) if with_run else None
    with ExitStack() as stack:
        job = OpenJob(folder, identity or {}, "", stack)
        if home and not is_held(home):
            stack.enter_context(hold(home, kind, waits))
        if not is_held(folder):
            lock = stack.enter_context(hold(folder, kind, waits and home is None))  # so that no two wait for each other
            job.token, job.waited = lock.token, lock.waited
        if upload == "while it grows":
            stack.enter_context(mirror.published(folder, kind, keep))
        began = time.monotonic()
        if identity is not None:
            (folder / MANIFEST).unlink(missing_ok=True)
            job.log = stack.enter_context(job.open_log())
            job.log.write("start", 0, **identity)
        yield job
        if job.log:
            seconds = {"run/seconds": time.monotonic() - began}
            job.log.write("end", job.identity.get("steps", 0), {**job.metrics, **seconds}, state=FINISHED)
        job.close(upload)
        if upload == "once finished" and job.is_finished:
            mirror.upload(folder, kind)


def _run_around(folder: Path) -> Path | None:
    """The run, study or evaluation that a folder lies in."""
    marks = (EVENT_LOG, STUDY)
    return next((above for above in folder.absolute().parents if any((above / mark).is_file() for mark in marks)), None)


def _say_if_any(close: Callable[[], str | None]) -> None:
    if sentence := close():
        say(sentence)
