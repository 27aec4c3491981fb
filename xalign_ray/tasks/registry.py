"""The tasks by name, and the metrics of them all: what scores, reports and documents read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any

from xalign_ray.tasks import PROBES, TUNED
from xalign_ray.tasks.task import Metric, Task, TunedTask

TUNED_TASKS: Mapping[str, TunedTask[Any]] = {
    name: resolve_name(f"{__package__}.{place}") for name, place in TUNED.items()
}
TASKS: Mapping[str, Task] = {
    name: resolve_name(f"{__package__}.{place}") for name, place in PROBES.items()
} | TUNED_TASKS
WITHOUT_DATA = frozenset(name for name, task in TASKS.items() if not task.needs_data)


def _supervised(metric: Metric) -> Metric:
    title, meaning = f"{metric.title}, fine-tuned on the language itself", "the same, fine-tuned on the tested language"
    return replace(metric, name=f"{metric.name}_supervised", title=title, meaning=meaning)


_PROBED = [metric for name in PROBES for metric in TASKS[name].metrics]
_TUNED = [replace(metric, of_tuned_head=True) for task in TUNED_TASKS.values() for metric in task.metrics]
METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        *sorted(_PROBED, key=lambda metric: not metric.higher_is_better),
        *(either for metric in _TUNED for either in (metric, _supervised(metric))),
    )
}
"""In the order of reports: first what needs no training, shares before cosines."""
