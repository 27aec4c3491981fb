"""What a report keeps of an event log: losses thinned to a bounded number of points, and what the run cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pandas as pd

from xalign_ray.track.events import Event, stream_events
from xalign_ray.track.names import METRICS

MAX_POINTS = 2000  # of a series; more are averaged in bins of steps
TOTAL, MASKED_LM, HELD_OUT = "train/loss", "train/loss_masked_lm", "held_out/loss"
LOSSES = tuple(name for name in METRICS if name.startswith(TOTAL) and name != "train/loss_scale")
POINT_COLUMNS = ["series", "language", "step", "value", "steps"]
_WAITING = "waiting"
_AT_ONCE = 5000  # points that are read before they are thinned

Point = tuple[str, str, int, float, int]  # as POINT_COLUMNS


@dataclass(frozen=True)
class Log:
    """A run's history along its surviving lineage; empty for an encoder made elsewhere.

    Attributes:
        path: of the log, None where there is none.
        starts: start events.
        started: when the first attempt began, seconds since 1970.
        last_step: the newest step that was finished.
        end: the end event, None of a run that has not ended.
        attempts: number of the newest.
        seconds: wall time of all attempts, what a restart threw away included.
        memory: peak, in MB, 0 where it was not logged.
        waiting: median share of step time spent waiting for rows.
        points: a row a point of a loss: series, language ("" for a mean over languages), step, value, and the number
            of logged steps up to this one that the value is the mean of. Losses that were not finite are left out.
        width: of the bins of steps that points are means over.
        data: folder of the prepared data.
    """

    path: Path | None = None
    starts: tuple[Event, ...] = ()
    started: float = 0.0
    last_step: int = 0
    end: Event | None = None
    attempts: int = 0
    seconds: float = 0.0
    memory: float = 0.0
    waiting: float | None = None
    points: pd.DataFrame = field(default_factory=lambda: _frame([]))
    width: int = 1
    data: str | None = None


def thin(points: pd.DataFrame, width: int = 1) -> tuple[pd.DataFrame, int]:
    """Points averaged over bins of steps, at least `width` wide and so wide that a series has at most MAX_POINTS.

    Returns:
        The points, and the width that was taken.
    """
    while len(points) and points.step.max() / width > MAX_POINTS:
        width *= 2
    weighted = points.assign(value=points.value * points.steps, bin=(points.step - 1) // width)
    bins = weighted.groupby(["series", "language", "bin"], sort=False)
    joined = bins.agg(step=("step", "max"), value=("value", "sum"), steps=("steps", "sum")).reset_index()
    return joined.assign(value=joined.value / joined.steps).reindex(columns=POINT_COLUMNS), width


def read_log(path: Path) -> Log:
    """Streams a log, however long it is: what is held does not grow with its steps.

    Raises:
        DataError: the log ends before its run did, or a line inside it is damaged.
    """
    times: dict[int, tuple[float, float]] = {}
    points, width, read = _frame([]), 1, list[Point]()
    starts, memory, data, last = list[Event](), 0.0, None, None
    for event, survives in stream_events(path):
        first, newest = times.get(event["attempt"], (event["time"], event["time"]))
        times[event["attempt"]] = min(first, event["time"]), max(newest, event["time"])
        data = event.get("data", data) if event["event"] == "start" else data
        if survives:
            last = event
            starts += [event] if event["event"] == "start" else []
            memory = max(memory, event.get("metrics", {}).get("train/peak_memory_mb") or 0)
            read += _points(event)
        if len(read) > _AT_ONCE:
            points, width = thin(pd.concat([points, _frame(read)]), width)
            read = []
    points, width = thin(pd.concat([points, _frame(read)]), width)
    waited = points.value[points.series == _WAITING]
    return Log(
        path=path,
        starts=tuple(starts),
        started=min((first for first, _ in times.values()), default=0.0),
        last_step=last["step"] if last else 0,
        end=last if last and last["event"] == "end" else None,
        attempts=max((start["attempt"] for start in starts), default=0),
        seconds=sum(newest - first for first, newest in times.values()),
        memory=memory,
        waiting=float(waited.median()) if len(waited) else None,
        points=cast(pd.DataFrame, points[points.series != _WAITING]),
        width=width,
        data=data,
    )


def _frame(rows: Sequence[Point]) -> pd.DataFrame:
    types = {"series": object, "language": object, "step": int, "value": float, "steps": int}
    return pd.DataFrame(rows, columns=POINT_COLUMNS).astype(types)


def _points(event: Event) -> list[Point]:
    step, metrics = event["step"], event.get("metrics", {})
    found = [(name, "", metrics.get(name)) for name in LOSSES] if event["event"] == "step" else []
    if event["event"] == "step" and metrics.get("train/step_ms"):
        found.append((_WAITING, "", metrics["train/data_wait_ms"] / metrics["train/step_ms"]))
    found.append((HELD_OUT, "", metrics.get(HELD_OUT)))
    found += [(HELD_OUT, language, value) for language, value in event.get("languages", {}).items()]
    return [(series, language, step, value, 1) for series, language, value in found if value is not None]
