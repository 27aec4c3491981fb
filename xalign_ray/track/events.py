"""The event log: one append-only file of JSON lines, the truth that every other place for numbers is fed from."""

from __future__ import annotations

import errno
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from xalign_ray.errors import DataError, TrainingError
from xalign_ray.track.names import EVENTS, is_known
from xalign_ray.work.artifacts import STUDY_KIND, TRIAL_KIND, check_files, finished_run, read_manifest
from xalign_ray.work.run_folder import EVENT_LOG

_ALWAYS = frozenset({"event", "attempt", "time", "step"})
_CURE_OF_TUNED = "Restore it from a copy, or give the command that made it again, of a cell after removing its folder."
_AT_ONCE = 1000  # events of a log that are held while it is streamed
_TO_DISK = frozenset({"checkpoint", "end"})

Event = dict[str, Any]


class EventLog:
    """Appends the events of one attempt; only rank 0 has one.

    A line is one system call, so a killed process leaves at most one torn line, the last; opening the log again cuts
    it off.
    """

    def __init__(self, path: Path, attempt: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.attempt = attempt
        self._file = path.open("ab", buffering=0)
        self._cut(_whole_size(path))

    def write(self, event: str, step: int, metrics: Mapping[str, float] | None = None, **fields: Any) -> None:
        """Appends one event.

        Args:
            event: a kind in `names.EVENTS`.
            step: number of the optimizer step just finished, counting from 1; for `start` the step that was resumed
                from, else 0.
            metrics: numbers under names that `names.is_known`; one that is not finite is written as null.
            fields: anything else that is JSON.

        Raises:
            TrainingError: the disk is full; the log still ends with a whole line.
        """
        assert event in EVENTS, f"event {event} is not in track/names.py"
        line: Event = {"event": event, "attempt": self.attempt, "time": time.time(), "step": int(step), **fields}
        if metrics is not None:
            unknown = sorted(metric for metric in metrics if not is_known(metric))
            assert not unknown, f"metrics {unknown} are not in track/names.py"
            line["metrics"] = {name: _number(value) for name, value in metrics.items()}
        self._append(json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n", event in _TO_DISK)

    def close(self) -> None:
        """Closes the file; further writes are a mistake."""
        self._file.close()

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, line: bytes, to_disk: bool) -> None:
        before = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if to_disk:
                # A checkpoint that outlives a power cut must find the events that led to it. A full quota of a network
                # disk is said here.
                os.fsync(self._file.fileno())
        except OSError as error:
            self._cut(before)
            raise TrainingError(
                f"{self.path} cannot be written ({error.strerror}). Make room and give the same command again: "
                "the run continues from its newest checkpoint."
            ) from error

    def _cut(self, size: int) -> None:
        if os.fstat(self._file.fileno()).st_size > size:
            self._file.truncate(size)


class EventReader:
    """Reads a log that is still being written, piece by piece and only whole lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._line = 0

    def read(self, limit: int | None = None) -> list[Event]:
        """The next events, at most `limit`, as they were written; none while the file does not exist.

        Raises:
            DataError: a line inside the file is not an event; names file and line.
        """
        events: list[Event] = []
        if not self.path.is_file():
            return events
        with self.path.open("rb") as file:
            file.seek(self._offset)
            while limit is None or len(events) < limit:
                line = file.readline()
                if not line.endswith(b"\n"):
                    break
                events.append(self._parse(line))
                self._line += 1
                self._offset += len(line)
        return events

    def stream(self) -> Iterator[Event]:
        """The next events up to the last that there is, never many of them in memory: a long run has gigabytes."""
        while events := self.read(_AT_ONCE):
            yield from events

    def _parse(self, line: bytes) -> Event:
        try:
            event = json.loads(line)
            if event.keys() >= _ALWAYS:
                return event
        except (ValueError, AttributeError):
            pass
        raise DataError(
            f"{self.path} line {self._line + 1} is not an event. The file was changed by another hand; "
            "restore it from a copy, or delete this line and give the command again."
        )


def check_whole(path: Path) -> None:
    """Raises DataError where the log of a run that has finished is gone, or ends before the run did."""
    if (manifest := finished_run(path.parent)) is None:
        return
    last = last_event(path)
    if (last.get("event"), last.get("step")) != ("end", manifest["steps"]):
        raise DataError(
            f"{path} is missing, empty or torn: this run ended at step {manifest['steps']}, its log does not. "
            "Restore it from a copy; the weights are whole without it."
        )


def check_tuned(folder: Path) -> None:
    """Raises DataError where a file of a finished study or cell is not as it was, or its log lacks the end.

    The model of a trial is not read: who opens it checks it.
    """
    manifest = read_manifest(folder) or {}
    if manifest.get("kind") not in (STUDY_KIND, TRIAL_KIND):
        return
    small = {name: digest for name, digest in manifest.get("files", {}).items() if not name.endswith(".safetensors")}
    check_files(folder, small, _CURE_OF_TUNED)
    if last_event(folder / EVENT_LOG).get("event") != "end":
        raise DataError(
            f"{folder / EVENT_LOG} is missing, empty or torn: it does not say how this ended. {_CURE_OF_TUNED}"
        )


def last_event(path: Path) -> Event:
    """The last whole event of a log, read from its end; empty where there is none."""
    if not path.is_file():
        return {}
    size = _whole_size(path)
    try:
        last = json.loads(_last_bytes(path, size).splitlines()[-1])
    except (ValueError, IndexError):
        return {}
    return last if isinstance(last, dict) else {}


def _last_bytes(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, size - 65536))
        return file.read(size)


def read_events(path: Path, surviving: bool = True) -> list[Event]:
    """All events of a log in the order of writing; a torn last line is left out.

    Args:
        path: the file `events.jsonl` of a run folder.
        surviving: keep only the lineage that led to the newest state, see `stream_events`.

    Raises:
        DataError: the file is missing, ends before its run did, or a line inside it is damaged.
    """
    return [event for event, survives in stream_events(path) if survives or not surviving]


def stream_events(path: Path) -> Iterator[tuple[Event, bool]]:
    """What `read_events` reads, a few events at a time, each with whether it is of the surviving lineage.

    A resume at step k supersedes older events at steps > k (at 0, everything but the starts), and what an older attempt
    still wrote after it.

    Raises:
        DataError: the file is missing, ends before its run did, or a line inside it is damaged.
    """
    if not path.is_file():
        raise DataError(f"{path} is missing: {path.parent} is not the folder of a run that has started.")
    check_whole(path)
    reader, number, attempt = EventReader(path), 0, 0
    starts, lines = _read_starts(path)
    newest = [min([step or -1 for _, step in starts[at:]], default=math.inf) for at in range(len(starts) + 1)]
    passed = 0
    while events := reader.read(min(_AT_ONCE, lines - number)):
        for event in events:
            number += 1
            late = event["attempt"] < attempt
            if event["event"] == "start" and not late:
                attempt, passed = event["attempt"], passed + 1
            yield event, not late and (event["event"] == "start" or event["step"] <= newest[passed])


def _read_starts(path: Path) -> tuple[list[tuple[int, int]], int]:
    """Attempt and step of each start that no newer attempt came before, and the number of whole lines."""
    starts: list[tuple[int, int]] = []
    lines = 0
    with path.open("rb") as file:
        for line in file:
            lines += line.endswith(b"\n")
            if b'"start"' not in line or not line.endswith(b"\n"):
                continue
            with suppress(ValueError, KeyError, TypeError):  # what is damaged is named by who reads on
                event = json.loads(line)
                if event["event"] == "start" and (not starts or event["attempt"] >= starts[-1][0]):
                    starts.append((event["attempt"], event["step"]))
    return starts, lines


def last_attempt(path: Path) -> int:
    """Number of the newest attempt in a log, 0 if there is none yet: the next attempt is one more."""
    return max((event["attempt"] for event, _ in stream_events(path)), default=0) if path.is_file() else 0


def last_step(path: Path) -> int:
    """The newest step in a log, 0 if there is none."""
    return max((event["step"] for event in EventReader(path).stream()), default=0)


def run_identity(folder: Path) -> dict[str, str] | None:
    """Fingerprint and first start of a run: what stays the same when it resumes, is renamed or copied.

    Returns:
        `{"fingerprint", "started"}`, or None if the run has not started. A fine-tuning run writes its model's identity
        into its own start event as `parent`, and is then shown below it in MLflow.
    """
    for event in EventReader(folder / EVENT_LOG).read(limit=1):
        return {"fingerprint": str(event.get("fingerprint", "")), "started": repr(event["time"])}
    return None


def _number(value: float) -> float | int | None:
    number = value if isinstance(value, int) else float(value)
    return number if math.isfinite(number) else None


def _whole_size(path: Path) -> int:
    """Size of a file up to the end of its last whole line, in bytes; reads from the back."""
    size = path.stat().st_size
    with path.open("rb") as file:
        while size > 0:
            start = max(0, size - 65536)
            file.seek(start)
            newline = file.read(size - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            size = start
    return 0
