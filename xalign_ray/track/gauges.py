"""The closed list of gauges that a cluster shows of runs and studies, and what each event of a run sets them to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xalign_ray.config.choices import OBJECTIVES, PLUGGED_OBJECTIVES
from xalign_ray.track.events import METRICS

PREFIX = "xalign_"  # Ray puts its own `ray_` before it
RUN_TAGS = ("run", "recipe", "method", "seed")
STUDY_TAGS = ("study", "state")
_LOSS = "train/loss_"


@dataclass(frozen=True)
class Gauge:
    """What a gauge means, and the tags that it has besides those of a run."""

    meaning: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    """A value for a gauge, with the tags that it has besides those of a run."""

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


class EventGauges:
    """Turns the events of a run, in their order, into points."""

    def __init__(self) -> None:
        self._last_step: float | None = None

    def points(self, event: Mapping[str, Any]) -> Iterator[Point]:
        """What an event sets. A number that is not finite (null in the log) sets nothing."""
        yield _point("attempt", event["attempt"])
        yield _point("step", event["step"])
        yield _point("event_time_seconds", event["time"], event=event["event"])
        for metric, value in (event.get("metrics") or {}).items():
            gauge, tags = gauge_of(metric)
            if value is not None and gauge in GAUGES:  # what a plug-in logs besides its loss has no panel
                yield Point(gauge, value, tags)
        if of_kind := _OF_KIND.get(event["event"]):
            yield from of_kind(self, event)

    def _start(self, event: Mapping[str, Any]) -> Iterator[Point]:
        self._last_step = None
        yield _point("loss_not_finite", 0)
        if "steps" in event:
            yield _point("steps", event["steps"])
        yield from _each("planned_token_share", "language", event.get("planned_shares", {}))
        if bad := event.get("bad_rows"):
            yield _point("data_bad_lines", bad["count"])
            yield _point("data_bad_line_share", bad["share"])
            yield _point("data_bad_line_limit", bad["limit"])
            yield from _each("data_bad_lines_by_reason", "reason", bad["reasons"])

    def _step(self, event: Mapping[str, Any]) -> Iterator[Point]:
        if self._last_step is not None:
            yield _point("step_event_interval_seconds", event["time"] - self._last_step)
        self._last_step = event["time"]

    def _data(self, event: Mapping[str, Any]) -> Iterator[Point]:
        yield from _each("tokens_by_language", "language", event.get("language_tokens", {}))
        for kind in ("data_wait_ms", "held_up_ms"):
            waits: Sequence[float] = event.get(kind, ())
            yield from _each(f"{kind}_by_rank", "rank", {str(rank): wait for rank, wait in enumerate(waits)})

    def _held_out(self, event: Mapping[str, Any]) -> Iterator[Point]:
        yield from _each("held_out_loss_by_language", "language", event.get("languages", {}))

    def _retrieval(self, event: Mapping[str, Any]) -> Iterator[Point]:
        yield from _each("retrieval_accuracy_by_language", "language", event.get("languages", {}))

    def _not_finite(self, _: Mapping[str, Any]) -> Iterator[Point]:
        yield _point("loss_not_finite", 1)


_OF_KIND = {
    "start": EventGauges._start,
    "step": EventGauges._step,
    "data": EventGauges._data,
    "held_out": EventGauges._held_out,
    "retrieval": EventGauges._retrieval,
    "not_finite": EventGauges._not_finite,
}


def begun(now: float) -> Iterator[Point]:
    """What a driver sets before the first event: a run that never comes to one stands still too.

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


def _each(gauge: str, tag: str, values: Mapping[str, float | None]) -> Iterator[Point]:
    for key, value in values.items():
        if value is not None:
            yield _point(gauge, value, **{tag: key})
