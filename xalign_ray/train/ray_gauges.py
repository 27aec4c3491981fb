"""Sets the gauges of runs and studies through Ray, whose nodes show them to Prometheus at their own `/metrics`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ray.util.metrics import Gauge

from xalign_ray.track.events import (
    CELLS,
    CELLS_MEANING,
    GAUGES,
    RUN_TAGS,
    STUDY_TAGS,
    EventGauges,
    Point,
    begun,
    running,
)

_log = logging.getLogger(__name__)
REFRESH_S = 1.0  # Ray passes a gauge on once for each time that it is set, and its nodes forget it two reports later


class _Refreshed:
    """Values that are set again and again until they are closed; whatever Ray does, nothing is raised or held up."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="gauges", daemon=True)
        self._thread.start()

    def _set(self, gauge: str, value: float, tags: Mapping[str, str]) -> None:
        with self._lock:
            self._values[gauge, tuple(tags.items())] = value

    def close(self) -> None:
        """Sets each value once more; the nodes forget them soon after."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            last = self._over.wait(REFRESH_S)
            with self._lock:
                values = list(self._values.items())
            for (name, tags), value in values:
                try:
                    _gauge(name).set(value, dict(tags))
                except Exception as error:  # Ray raises errors of any kind
                    _log.debug("Ray does not take the gauge %s (%s).", name, error)
            if last:
                return


class RunGauges(_Refreshed):
    """The gauges of one run, set in the driver from the events that it follows."""

    def __init__(self, run: Path, facts: Mapping[str, Any]) -> None:
        super().__init__()
        method = facts.get("labels", {}).get("method", "")
        self._tags = dict(zip(RUN_TAGS, (run.name, facts["recipe"], method, str(facts.get("seed", ""))), strict=True))
        self._events = EventGauges()
        self._show(*begun(time.time()))

    def show(self, event: Mapping[str, Any]) -> None:
        """Sets the gauges of an event."""
        self._show(*self._events.points(event))

    def close(self) -> None:
        """The run does not train any more."""
        self._show(running(False))
        super().close()

    def _show(self, *points: Point) -> None:
        for point in points:
            self._set(point.gauge, point.value, self._tags | dict(point.tags))


class CellGauges(_Refreshed):
    """How many cells of a study at work are in each state; closed when the study has ended."""

    def __init__(self, study: str) -> None:
        super().__init__()
        self._study = study

    def show(self, states: Mapping[str, int]) -> None:
        """Sets the number of each state."""
        for state, cells in states.items():
            self._set(CELLS, cells, dict(zip(STUDY_TAGS, (self._study, state), strict=True)))


@cache
def _gauge(name: str) -> Gauge:
    if name == CELLS:
        return Gauge(CELLS, CELLS_MEANING, STUDY_TAGS)
    return Gauge(name, GAUGES[name].meaning, (*RUN_TAGS, *GAUGES[name].tags))
