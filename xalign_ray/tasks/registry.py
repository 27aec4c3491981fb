"""The tasks by name, and the metrics of them all: what scores, reports and documents read.

A task of a user's own is a module with one object of `Task`; its name is the module's, with a dot in it.
"""

from __future__ import annotations

from dataclasses import replace
from pkgutil import resolve_name
from typing import Any

from xalign_ray.config.plugins import import_plugin
from xalign_ray.tasks import PROBES, TUNED
from xalign_ray.tasks.mteb_task import PREFIX, MtebTask
from xalign_ray.tasks.task import Metric, Task, TunedTask

TUNED_TASKS: dict[str, TunedTask[Any]] = {name: resolve_name(f"{__package__}.{place}") for name, place in TUNED.items()}
TASKS: dict[str, Task] = {name: resolve_name(f"{__package__}.{place}") for name, place in PROBES.items()}
TASKS.update(TUNED_TASKS)


def _supervised(metric: Metric) -> Metric:
    title, meaning = f"{metric.title}, fine-tuned on the language itself", "the same, fine-tuned on the tested language"
    return replace(metric, name=f"{metric.name}_supervised", title=title, meaning=meaning)


def _metrics_of(task: Task) -> list[Metric]:
    """With those of a head that was fine-tuned on the tested language itself."""
    if not isinstance(task, TunedTask):
        return list(task.metrics)
    tuned = [replace(metric, of_tuned_head=True) for metric in task.metrics]
    return [either for metric in tuned for either in (metric, _supervised(metric))]


_PROBED = [metric for name in PROBES for metric in TASKS[name].metrics]
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *sorted(_PROBED, key=lambda metric: not metric.higher_is_better),
        *(metric for task in TUNED_TASKS.values() for metric in _metrics_of(task)),
    )
}
"""In the order of reports: first what needs no training, shares before cosines."""


def load_task(name: str) -> None:
    """Makes a task of the user's own or of mteb known, with its metrics, if the name is one of these.

    Raises:
        ValueError: there is no such module, it has no task or several, or a metric has a name that is taken.
    """
    if name in TASKS:
        return
    if name.startswith(PREFIX):
        TASKS[name] = task = MtebTask(name)
        METRICS.update({metric.name: metric for metric in task.metrics})
        return
    if "." not in name:
        return
    module = import_plugin(name)
    found = [one for one in vars(module).values() if isinstance(one, Task) and type(one).__module__ == name]
    if len(found) != 1:
        raise ValueError(
            f"{name} ({module.__file__}) has {len(found)} objects of Task (xalign_ray.tasks.task); a task of your own "
            "is a module with one: MOOD = MoodTask()"
        )
    (task,) = found
    if task.name != name:
        raise ValueError(f"{name} has a task of the name '{task.name}'; a task of your own is named as its module is")
    metrics = {metric.name: metric for metric in _metrics_of(task)}
    if taken := sorted(metrics.keys() & METRICS.keys()):
        raise ValueError(f"{name} has a metric {taken[0]}, as another task has; give it another name")
    TASKS[name] = task
    if isinstance(task, TunedTask):
        TUNED_TASKS[name] = task
    METRICS.update(metrics)
