"""What a report keeps of an event log: losses thinned to a bounded number of points, and what the run cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from xalign_ray.track.events import Event, stream_events
from xalign_ray.track.names import METRICS

MAX_POINTS = 2000  # of a series; more are averaged in bins of steps
TOTAL, MASKED_LM, HELD_OUT = "train/loss", "train/loss_masked_lm", "held_out/loss"
LOSSES = tuple(name for name in METRICS if name.startswith(TOTAL) and name != "train/loss_scale")
POINT_COLUMNS = ["series", "language", "step", "value", "steps"]
_WAITING = "waiting"

Bin = tuple[float, int, int]  # sum, number of values, last step


class _Thinned:
    """Series of values by step, averaged over bins that are as wide as at most MAX_POINTS of them allow."""

    def __init__(self) -> None:
        self.width = 1
        self._series: dict[tuple[str, str], dict[int, Bin]] = {}

    def add(self, name: str, language: str, step: int, value: float | None) -> None:
        if value is None:
            return
        bins = self._series.setdefault((name, language), {})
        _add(bins, (step - 1) // self.width, (value, 1, step))
        while len(bins) > MAX_POINTS:
            self.width *= 2
            for series, old in list(self._series.items()):
                bins = self._series[series] = {}
                for place, own in old.items():
                    _add(bins, place // 2, own)
            bins = self._series[name, language]

    def frame(self, waiting: bool = False) -> pd.DataFrame:
        rows = [
            (*series, last, total / count, count)
            for series, bins in self._series.items()
            for total, count, last in bins.values()
            if (series[0] == _WAITING) == waiting
        ]
        return pd.DataFrame(rows, columns=POINT_COLUMNS)


def _add(bins: dict[int, Bin], place: int, own: Bin) -> None:
    total, count, last = bins.get(place, (0.0, 0, 0))
    bins[place] = (total + own[0], count + own[1], max(last, own[2]))


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
    points: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=POINT_COLUMNS))
    width: int = 1
    data: str | None = None


def read_log(path: Path) -> Log:
    """Streams a log, however long it is: what is held does not grow with its steps.

    Raises:
        DataError: the log ends before its run did, or a line inside it is damaged.
    """
    times: dict[int, tuple[float, float]] = {}
    thinned, starts, memory, data, last = _Thinned(), list[Event](), 0.0, None, None
    for event, survives in stream_events(path):
        first, newest = times.get(event["attempt"], (event["time"], event["time"]))
        times[event["attempt"]] = min(first, event["time"]), max(newest, event["time"])
        data = event.get("data", data) if event["event"] == "start" else data
        if survives:
            last = event
            starts += [event] if event["event"] == "start" else []
            memory = max(memory, event.get("metrics", {}).get("train/peak_memory_mb") or 0)
            _add_losses(thinned, event)
    waited = thinned.frame(waiting=True).value
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
        points=thinned.frame(),
        width=thinned.width,
        data=data,
    )


def _add_losses(thinned: _Thinned, event: Event) -> None:
    step, metrics = event["step"], event.get("metrics", {})
    if event["event"] == "step":
        for name in LOSSES:
            thinned.add(name, "", step, metrics.get(name))
        if metrics.get("train/step_ms"):
            thinned.add(_WAITING, "", step, metrics["train/data_wait_ms"] / metrics["train/step_ms"])
    thinned.add(HELD_OUT, "", step, metrics.get(HELD_OUT))
    for language, value in event.get("languages", {}).items():
        thinned.add(HELD_OUT, language, step, value)
