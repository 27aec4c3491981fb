"""Sets the gauges of runs and studies through Ray, whose nodes show them to Prometheus at their own `/metrics`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ray.util.metrics import Gauge

from xalign_ray.track.gauges import CELLS, CELLS_MEANING, GAUGES, RUN_TAGS, STUDY_TAGS, EventGauges, Point, running

_log = logging.getLogger(__name__)


class RunGauges:
    """The gauges of one run, set in the driver from the events that it follows; whatever Ray does, the run goes on."""

    def __init__(self, run: Path, facts: Mapping[str, Any]) -> None:
        method = facts.get("labels", {}).get("method", "")
        self._tags = dict(zip(RUN_TAGS, (run.name, facts["recipe"], method, str(facts.get("seed", ""))), strict=True))
        self._events = EventGauges()

    def show(self, event: Mapping[str, Any]) -> None:
        """Sets what an event says."""
        for point in self._events.points(event):
            self._set(point)

    def run(self, trains: bool) -> None:
        """Sets whether the run trains."""
        self._set(running(trains))

    def _set(self, point: Point) -> None:
        _set(point.gauge, point.value, self._tags | dict(point.tags))


def show_cells(study: str, states: Mapping[str, int]) -> None:
    """Sets how many cells of a study are in each state."""
    for state, cells in states.items():
        _set(CELLS, cells, dict(zip(STUDY_TAGS, (study, state), strict=True)))


def _set(name: str, value: float, tags: dict[str, str]) -> None:
    try:
        _gauge(name).set(value, tags)
    except Exception as error:  # of whatever kind Ray's are
        _log.debug("Ray does not take the gauge %s (%s).", name, error)


@cache
def _gauge(name: str) -> Gauge:
    if name == CELLS:
        return Gauge(CELLS, CELLS_MEANING, STUDY_TAGS)
    return Gauge(name, GAUGES[name].meaning, (*RUN_TAGS, *GAUGES[name].tags))
