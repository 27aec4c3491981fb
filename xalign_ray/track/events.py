"""The event log of a run: its lines, their readers and writer, and the closed list of metric names"""

from __future__ import annotations

import errno
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xalign_ray.config.choices import OBJECTIVES, PLUGGED_OBJECTIVES
from xalign_ray.errors import DataError, TrainingError
from xalign_ray.work.artifacts import STUDY_KIND, TRIAL_KIND, check_files, finished_run, read_manifest
from xalign_ray.work.run_folder import EVENT_LOG

EVENTS: dict[str, str] = {
    "start": "an attempt begins or resumes after `step` finished steps; carries recipe, fingerprint, attempt, steps, "
    "the share of tokens planned for each language, the bad rows that `prepare` set aside, and the host of each rank",
    "step": "an optimizer step has finished; carries batch_hash and the train/ metrics",
    "held_out": "held-out rows were scored; carries held_out/ metrics and the loss per language",
    "retrieval": "retrieval was scored on dev pairs, or on data.tests without them (`part`); carries retrieval/ "
    "metrics and the accuracy per language; step 0 is the model before training",
    "profile": "some steps were looked at closely; carries their number and the summary of where their time went",
    "data": "counters of the feed since the start of this attempt, the tokens of each language, and each rank's wait "
    "for its rows and for the other ranks; twice a minute",
    "checkpoint": "a checkpoint has its manifest; carries its path",
    "not_finite": "the loss or the gradient of a step is not finite; carries the sentence; the attempt ends with it",
    "stalled": "a step did not end in time; carries the sentence that names the worker; the attempt ends with it",
    "stopped": "the job was told to stop, and the step is saved; carries the signal",
    "end": "the last step is done and its checkpoint written; carries the run/ metrics",
}

METRICS: dict[str, str] = {
    "train/loss": "weighted sum of the objectives (nats), normalised over the global step",
    **{f"train/loss_{kind}": f"{loss.meaning}, before its weight" for kind, loss in OBJECTIVES.items()},
    "train/learning_rate": "learning rate that the step used",
    "train/gradient_norm": "global gradient norm (L2) before clipping; absent where the engine has none",
    "train/labels": "labels in the global step (count)",
    "train/cross_lingual_label_share": "labels in another language than their input, of all labels (0 to 1)",
    "train/tokens_per_s": "tokens of all ranks, without padding, over the wall time of the step (1/s)",
    "train/tflops": "operations that the model needs for the step, over its wall time and the workers (TFLOP/s)",
    "train/mfu": "train/tflops over the GPU's peak in the recipe's precision (0 to 1); absent for devices not known",
    "train/padding_share": "positions that are padding, of all positions (0 to 1)",
    "train/step_ms": "wall time of the step, waiting for data included (ms)",
    "train/data_wait_ms": "time in which rank 0 waited for the feed (ms)",
    "train/peak_memory_mb": "peak memory of rank 0's device, on CPU of its process (MB)",
    **{name: meaning for loss in OBJECTIVES.values() for name, meaning in loss.metrics.items()},
    "held_out/loss": "masked-LM loss on held-out rows (nats a label), mean over languages",
    "retrieval/accuracy": "sentences of the dev pairs, or of data.tests without them, that find their translation by "
    "cosine, mean of both directions and of languages (0 to 1)",
    "data/rows": "rows delivered (count)",
    "data/tokens": "tokens delivered, without padding (count)",
    "data/fallback_words": "words left as they were in a step: translation did not fit (count)",
    "data/bad_lines": "bad input lines (count)",
    "data/bad_line_share": "bad input lines, of all input lines (0 to 1)",
    "system/cpu_utilization_percentage": "how busy the CPUs of rank 0's host are (0 to 100)",
    "system/system_memory_usage_megabytes": "memory in use on rank 0's host (MB)",
    "system/system_memory_usage_percentage": "the same, of all that it has (0 to 100)",
    "system/gpu_memory_usage_megabytes": "memory in use on rank 0's GPU, by all processes (MB)",
    "system/gpu_memory_usage_percentage": "the same, of all that it has (0 to 100)",
    "checkpoint/save_s": "time in which training stood still for the checkpoint (s)",
    "checkpoint/write_s": "time from the state's copy until the checkpoint was whole on the disk (s)",
    "checkpoint/size_mb": "size of the checkpoint folder (MB)",
    "run/cpu_seconds": "CPU time of all processes of a command that a study runs (s)",
    "run/peak_memory_mb": "largest memory of all processes of a command together, shared pages counted once (MB)",
    "run/seconds": "wall time of this attempt from its first to its last step (s)",
    "run/worker_hours": "wall time of this attempt times its training processes (h)",
    "run/tokens": "tokens trained on along the surviving lineage (count)",
    "run/tokens_per_s": "tokens over wall time of this attempt (1/s)",
    "fine_tune/loss": "fine-tuning loss (nats)",
    "fine_tune/learning_rate": "learning rate of fine-tuning",
    "fine_tune/dev_score": "score on the English development set, in the task's own metric (0 to 1)",
}


def is_known(metric: str) -> bool:
    """Whether an event may hold it: it is in METRICS, or of a loss that a plug-in has brought."""
    return metric in METRICS or any(
        metric == f"train/loss_{kind}" or metric in loss.metrics for kind, loss in PLUGGED_OBJECTIVES.items()
    )


_ALWAYS = frozenset({"event", "attempt", "time", "step"})
_CURE_OF_TUNED = "Restore it from a copy, or give the command that made it again, of a cell after removing its folder."
MAX_POINTS = 2000  # points a metric in a tracker: more make MLflow's pages hang (mlflow#1571, mlflow#9779)
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
        assert event in EVENTS, f"event {event} is not in track/events.py"
        line: Event = {"event": event, "attempt": self.attempt, "time": time.time(), "step": int(step), **fields}
        if metrics is not None:
            unknown = sorted(metric for metric in metrics if not is_known(metric))
            assert not unknown, f"metrics {unknown} are not in track/events.py"
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
                # disk is reported here.
                os.fsync(self._file.fileno())
        except OSError as error:
            self._cut(before)
            raise TrainingError(
                f"{self.path} cannot be written ({error.strerror}). Make room and rerun the same command: "
                "the run resumes from its newest checkpoint."
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
            f"{self.path} line {self._line + 1} is not an event. The file was changed outside xalign; "
            "restore it from a copy, or delete this line and rerun the command."
        )


class Thinning:
    """Gives every step its place among at most MAX_POINTS of a tracker; only the first point of a place is kept.

    Places are counted back from the last step, so the last step always begins a new place.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._stride = max(1, math.ceil(steps / (MAX_POINTS - 1)))
        self._taken: dict[str, int] = {}

    def take(self, metrics: Mapping[str, float | None], step: int) -> dict[str, float]:
        """The finite numbers of a step that are the first of their place."""
        slot = self.place(step)
        taken_now = {
            name: value
            for name, value in metrics.items()
            if value is not None and slot > self._taken.get(name, -math.inf)
        }
        self._taken |= dict.fromkeys(taken_now, slot)
        return taken_now

    def place(self, step: int) -> int:
        """Number of the step's place; grows with the step."""
        return (step - self._steps) // self._stride


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
        raise DataError(f"{folder / EVENT_LOG} is missing, empty or torn: it has no end event. {_CURE_OF_TUNED}")


def last_event(path: Path) -> Event:
    """The last whole event of a log, read from its end; empty where there is none."""
    if not path.is_file():
        return {}
    size = _whole_size(path)
    try:
        with path.open("rb") as file:
            file.seek(max(0, size - 65536))
            last = json.loads(file.read(size).splitlines()[-1])
    except (ValueError, IndexError):
        return {}
    return last if isinstance(last, dict) else {}


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

    A resume at step k supersedes older events at steps > k (at 0, everything but the starts), and events that an
    older attempt still wrote after it.

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
            with suppress(ValueError, KeyError, TypeError):  # the reader that goes on names the damage
                event = json.loads(line)
                if event["event"] == "start" and (not starts or event["attempt"] >= starts[-1][0]):
                    starts.append((event["attempt"], event["step"]))
    return starts, lines


def newest_data(path: Path) -> str | None:
    """The folder of prepared data in the newest start event; None if there is none."""
    data = None
    for event, survives in stream_events(path):
        data = event["data"] if survives and "data" in event else data
    return data


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


# The closed list of gauges that a cluster shows of runs and studies, and what each event of a run sets them to.

PREFIX = "xalign_"  # Ray puts its own `ray_` before it
RUN_TAGS = ("run", "recipe", "method", "seed")
STUDY_TAGS = ("study", "state")
_LOSS = "train/loss_"


@dataclass(frozen=True)
class Gauge:
    """Meaning of a gauge, and its tags in addition to a run's."""

    meaning: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    """A value of a gauge, with its tags in addition to a run's."""

    gauge: str
    value: float
    tags: Mapping[str, str]


def gauge_of(metric: str) -> tuple[str, dict[str, str]]:
    """The gauge of a metric's name, and its tags: `train/loss_masked_lm` is a value of `train_loss_by_objective`."""
    kind = metric.removeprefix(_LOSS)
    if kind != metric and (kind in OBJECTIVES or kind in PLUGGED_OBJECTIVES):
        return f"{PREFIX}train_loss_by_objective", {"objective": kind}
    return PREFIX + metric.replace("/", "_"), {}


GAUGES: dict[str, Gauge] = {
    **{gauge_of(metric)[0]: Gauge(meaning, tuple(gauge_of(metric)[1])) for metric, meaning in METRICS.items()},
    f"{PREFIX}train_loss_by_objective": Gauge("loss of an objective, before its weight", ("objective",)),
    f"{PREFIX}running": Gauge("1 while the run trains, 0 when it has ended"),
    f"{PREFIX}attempt": Gauge("number of the attempt"),
    f"{PREFIX}step": Gauge("the newest step with an event"),
    f"{PREFIX}steps": Gauge("steps of the whole run"),
    f"{PREFIX}step_event_interval_seconds": Gauge("time between the two newest step events (s)"),
    f"{PREFIX}event_time_seconds": Gauge("when the newest event of a kind was written (Unix time)", ("event",)),
    f"{PREFIX}loss_not_finite": Gauge("1 when a step's loss or gradient was not finite, which ends the attempt"),
    f"{PREFIX}data_wait_ms_by_rank": Gauge("time in which a rank waited for the feed, mean of a step (ms)", ("rank",)),
    f"{PREFIX}held_up_ms_by_rank": Gauge("time in which a rank waited for the others, mean of a step (ms)", ("rank",)),
    f"{PREFIX}tokens_by_language": Gauge("tokens of a language since the start of the attempt", ("language",)),
    f"{PREFIX}planned_token_share": Gauge("share of the run's tokens planned for a language (0 to 1)", ("language",)),
    f"{PREFIX}held_out_loss_by_language": Gauge("loss on held-out rows of a language (nats a label)", ("language",)),
    f"{PREFIX}retrieval_accuracy_by_language": Gauge(
        "translations of a language that are found (0 to 1)", ("language",)
    ),
    f"{PREFIX}data_bad_lines_by_reason": Gauge("bad input lines set aside for a reason", ("reason",)),
    f"{PREFIX}data_bad_line_limit": Gauge("bad input lines that are allowed, of all (data.max_bad_fraction, 0 to 1)"),
}
CELLS = f"{PREFIX}study_cells"  # the one gauge of studies: its tags are STUDY_TAGS
CELLS_MEANING = "cells of a study in a state"


# Fields of events with a value for each language, rank or reason: the gauge of these values, and its tag.
_BY_TAG = {
    ("start", "planned_shares"): ("planned_token_share", "language"),
    ("data", "language_tokens"): ("tokens_by_language", "language"),
    ("data", "data_wait_ms"): ("data_wait_ms_by_rank", "rank"),
    ("data", "held_up_ms"): ("held_up_ms_by_rank", "rank"),
    ("held_out", "languages"): ("held_out_loss_by_language", "language"),
    ("retrieval", "languages"): ("retrieval_accuracy_by_language", "language"),
}


class EventGauges:
    """Turns the events of a run, in their order, into points."""

    def __init__(self) -> None:
        self._last_step: float | None = None

    def points(self, event: Mapping[str, Any]) -> Iterator[Point]:
        """Gauge values of an event. A number that is not finite (null in the log) sets nothing."""
        yield _point("attempt", event["attempt"])
        yield _point("step", event["step"])
        yield _point("event_time_seconds", event["time"], event=event["event"])
        for metric, value in (event.get("metrics") or {}).items():
            gauge, tags = gauge_of(metric)
            if value is not None and gauge in GAUGES:  # a plug-in's further metrics have no panel
                yield Point(gauge, value, tags)
        for (kind, field), (gauge, tag) in _BY_TAG.items():
            if kind == event["event"]:
                yield from _each(gauge, tag, event.get(field, {}))
        if event["event"] == "start":
            self._last_step = None
            yield _point("loss_not_finite", 0)
            if "steps" in event:
                yield _point("steps", event["steps"])
            if bad := event.get("bad_rows"):
                yield _point("data_bad_lines", bad["count"])
                yield _point("data_bad_line_share", bad["share"])
                yield _point("data_bad_line_limit", bad["limit"])
                yield from _each("data_bad_lines_by_reason", "reason", bad["reasons"])
        elif event["event"] == "step":
            if self._last_step is not None:
                yield _point("step_event_interval_seconds", event["time"] - self._last_step)
            self._last_step = event["time"]
        elif event["event"] == "not_finite":
            yield _point("loss_not_finite", 1)


def begun(now: float) -> Iterator[Point]:
    """Gauge values before the first event: a run that never comes to one stands still too.

    Args:
        now: seconds since 1970.
    """
    yield running(True)
    yield _point("event_time_seconds", now, event="driver")
    yield _point("step_event_interval_seconds", 0)


def running(value: bool) -> Point:
    """Whether a run trains now."""
    return _point("running", value)


def _point(gauge: str, value: float, **tags: str) -> Point:
    return Point(PREFIX + gauge, float(value), tags)


def _each(gauge: str, tag: str, values: Mapping[str, float | None] | Sequence[float]) -> Iterator[Point]:
    for key, value in values.items() if isinstance(values, Mapping) else enumerate(values):
        if value is not None:
            yield _point(gauge, value, **{tag: str(key)})
