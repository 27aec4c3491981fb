"""The alerts: when Prometheus speaks up, by gauges of the closed list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.panels import of, selector

QUIET_S, INTERVALS = 300, 3  # a step is stalled after so long and so many pauses between two step events
STARVED = 0.5  # of a step's time, for WINDOW
WINDOW = "5m"
REMEMBERED = "15m"  # a driver whose loss is not finite ends, and its gauges with it
CHECKPOINT_MINUTES = 60


@dataclass(frozen=True)
class Alert:
    """An alert. watched: the series that it judges; where one of them is missing it says nothing."""

    name: str
    expr: str
    watched: Sequence[str]
    hold: str  # how long it must be so
    severity: str
    summary: str


RUNNING = selector("xalign_running")
EVENTS, SAVED = (
    selector("xalign_event_time_seconds"),
    selector("xalign_event_time_seconds", event="start|checkpoint"),
)
INTERVAL = selector("xalign_step_event_interval_seconds")
WAITS, STEP = selector("xalign_data_wait_ms_by_rank"), selector("xalign_train_step_ms")
BAD, LIMIT = selector("xalign_data_bad_line_share"), selector("xalign_data_bad_line_limit")
NOT_FINITE = selector("xalign_loss_not_finite")
TRAINS = f"on (run) ({of(RUNNING)} == 1)"

ALERTS = [
    Alert(
        "XalignStalledStep",
        f"(time() - {of(EVENTS)} > {QUIET_S} + {INTERVALS} * {of(INTERVAL)}) and {TRAINS}",
        [EVENTS, INTERVAL, RUNNING],
        "1m",
        "critical",
        "{{ $labels.run }} has written no event for {{ $value | humanizeDuration }}.",
    ),
    Alert(
        "XalignDataStarvation",
        f"(max by (run) (avg_over_time({WAITS}[{WINDOW}])) > {STARVED} * "
        f"{of(f'avg_over_time({STEP}[{WINDOW}])')}) and {TRAINS}",
        [WAITS, STEP, RUNNING],
        WINDOW,
        "warning",
        "A rank of {{ $labels.run }} waits {{ $value | humanize }} ms a step for data, more than half of the step.",
    ),
    Alert(
        "XalignLossNotFinite",
        f"{of(f'max_over_time({NOT_FINITE}[{REMEMBERED}])')} > 0",
        [NOT_FINITE],
        "0s",
        "critical",
        "The loss of {{ $labels.run }}, or its gradient, is not finite; events.jsonl has the step and what to change.",
    ),
    Alert(
        "XalignBadLinesAboveLimit",
        f"{of(BAD)} > {of(LIMIT)}",
        [BAD, LIMIT],
        "0s",
        "warning",
        "{{ $value | humanizePercentage }} of the lines of {{ $labels.run }} are bad, more than data.max_bad_fraction.",
    ),
    Alert(
        "XalignNoCheckpoint",
        f"(time() - {of(SAVED)} > {CHECKPOINT_MINUTES * 60}) and {TRAINS}",
        [SAVED, RUNNING],
        "1m",
        "warning",
        "{{ $labels.run }} has saved nothing for {{ $value | humanizeDuration }}.",
    ),
]
