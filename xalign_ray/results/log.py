"""What a report keeps of an event log: losses thinned to a bounded number of points, and what the run cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from xalign_ray.track.events import Event, stream_events

MAX_POINTS = 2000  # of a series; more are averaged in bins of steps
TOTAL, MASKED_LM, HELD_OUT = "train/loss", "train/loss_masked_lm", "held_out/loss"
RETRIEVAL = "retrieval/accuracy"
_BY_LANGUAGE = {"held_out": HELD_OUT, "retrieval": RETRIEVAL}  # the series of an event's `languages`
POINT = {"series": object, "language": object, "step": int, "value": float, "steps": int}
_WAITING = "waiting"
_AT_ONCE = 5000  # points that are read before they are thinned


@dataclass(frozen=True)
class Log:
    """A run's history along its surviving lineage; empty for an encoder made elsewhere.

    Attributes:
        starts, end: the events; no end of a run that has not ended.
        started: when the first attempt began, seconds since 1970.
        seconds: wall time of all attempts, what a restart threw away included.
        memory: peak, in MB, 0 where it was not logged.
        waiting: median share of step time spent waiting for rows.
        points: a row a point of a loss: series, language ("" for a mean over languages), step, value, and the number
            of logged steps up to this one that the value is the mean of. Losses that were not finite are left out.
        width: of the bins of steps that points are means over.
    """

    path: Path | None = None
    starts: tuple[Event, ...] = ()
    end: Event | None = None
    last_step: int = 0
    started: float = 0.0
    seconds: float = 0.0
    memory: float = 0.0
    waiting: float | None = None
    points: pd.DataFrame = field(default_factory=lambda: _frame([]))
    width: int = 1


def thin_points(points: pd.DataFrame, width: int = 1) -> tuple[pd.DataFrame, int]:
    """Points averaged over bins of steps, at least `width` wide and so wide that a series has at most MAX_POINTS.

    Returns:
        The points, and the width that was taken.
    """
    while len(points) and points.step.max() / width > MAX_POINTS:
        width *= 2
    weighted = points.assign(value=points.value * points.steps, bin=(points.step - 1) // width)
    bins = weighted.groupby(["series", "language", "bin"], sort=False)
    joined = bins.agg(step=("step", "max"), value=("value", "sum"), steps=("steps", "sum")).reset_index()
    return joined.assign(value=joined.value / joined.steps).reindex(columns=list(POINT)), width


def read_log(path: Path) -> Log:
    """Streams a log, however long it is: what is held does not grow with its steps.

    Raises:
        DataError: the log ends before its run did, or a line inside it is damaged.
    """
    times: dict[int, tuple[float, float]] = {}
    points, width, read = _frame([]), 1, list[tuple]()
    starts, memory, last = list[Event](), 0.0, Event()
    for event, survives in stream_events(path):
        first, newest = times.get(event["attempt"], (event["time"], event["time"]))
        times[event["attempt"]] = min(first, event["time"]), max(newest, event["time"])
        if not survives:
            continue
        last = event
        starts += [event] if event["event"] == "start" else []
        memory = max(memory, event.get("metrics", {}).get("train/peak_memory_mb") or 0)
        read += _points(event)
        if len(read) > _AT_ONCE:
            points, width = thin_points(pd.concat([points, _frame(read)]), width)
            read = []
    points, width = thin_points(pd.concat([points, _frame(read)]), width)
    waited = points.value[points.series == _WAITING]
    return Log(
        path=path,
        starts=tuple(starts),
        end=last if last.get("event") == "end" else None,
        last_step=last.get("step", 0),
        started=min((first for first, _ in times.values()), default=0.0),
        seconds=sum(newest - first for first, newest in times.values()),
        memory=memory,
        waiting=float(waited.median()) if len(waited) else None,
        points=cast(pd.DataFrame, points[points.series != _WAITING]),
        width=width,
    )


def read_steps(log: Log) -> pd.DataFrame:
    """Every step whose rows are known: step, batch_hash, loss; 24 bytes each. None where the log is not kept."""
    found = (
        (event for event, survives in stream_events(log.path) if survives) if log.path and log.path.is_file() else ()
    )
    steps = (
        (event["step"], event["batch_hash"], event["metrics"][TOTAL])
        for event in found
        if event["event"] == "step" and "batch_hash" in event and event["metrics"][TOTAL] is not None
    )
    return pd.DataFrame(np.fromiter(steps, [("step", "i8"), ("batch_hash", "u8"), ("loss", "f8")]))


def is_loss(metric: str) -> bool:
    """Whether it is the loss of a step, or of one of its objectives, which may be a plug-in's."""
    return metric.startswith(TOTAL)


def _frame(rows: Sequence[tuple]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(POINT)).astype(POINT)


def _points(event: Event) -> Iterator[tuple]:
    metrics = event.get("metrics", {})
    found = [("", name, metrics.get(name)) for name in _BY_LANGUAGE.values()]
    if series := _BY_LANGUAGE.get(event["event"]):
        found += [(language, series, value) for language, value in event.get("languages", {}).items()]
    if event["event"] == "step":
        found += [("", name, value) for name, value in metrics.items() if is_loss(name)]
        if metrics.get("train/step_ms"):
            found.append(("", _WAITING, metrics["train/data_wait_ms"] / metrics["train/step_ms"]))
    return ((name, language, event["step"], value, 1) for language, name, value in found if value is not None)
