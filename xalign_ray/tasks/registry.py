"""The tasks by name, with all their metrics; tasks of the package mteb and of a user's own once they are named.

A task of a user's own is a module with one object of `Task`; its name is the module's, with a dot in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any

from xalign_ray.config.plugins import import_plugin
from xalign_ray.tasks import BENCHMARKS, PROBES
from xalign_ray.tasks.mteb_task import PREFIX, MtebTask
from xalign_ray.tasks.task import Metric, Task, TunedTask


def _benchmark(name: str, row: Mapping[str, Any]) -> TunedTask[Any]:
    """The task of a row of benchmarks.yaml."""
    facts = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    facts["metrics"] = tuple(
        Metric(metric, *words[:2], by="".join(words[2:])) for metric, words in row["metrics"].items()
    )
    return resolve_name(f"{__package__}.{facts.pop('task')}")(name=name, **facts)


TUNED_TASKS: dict[str, TunedTask[Any]] = {name: _benchmark(name, row) for name, row in BENCHMARKS.items()}
TASKS: dict[str, Task] = {name: resolve_name(f"{__package__}.{path}") for name, path in PROBES.items()}
TASKS.update(TUNED_TASKS)


def _supervised(metric: Metric) -> Metric:
    title, meaning = f"{metric.title}, fine-tuned on the language itself", "the same, fine-tuned on the tested language"
    return replace(metric, name=f"{metric.name}_supervised", title=title, meaning=meaning)


def _metrics_of(task: Task) -> list[Metric]:
    """With the scores of a head that was fine-tuned on the tested language itself."""
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
    objects = [
        member for member in vars(module).values() if isinstance(member, Task) and type(member).__module__ == name
    ]
    if len(objects) != 1:
        raise ValueError(
            f"{name} ({module.__file__}) has {len(objects)} objects of Task (xalign_ray.tasks.task); a task of your "
            "own is a module with one: MOOD = MoodTask()"
        )
    (task,) = objects
    if task.name != name:
        raise ValueError(f"{name} has a task of the name '{task.name}'; a task of your own is named as its module is")
    metrics = {metric.name: metric for metric in _metrics_of(task)}
    if repeated := sorted(metrics.keys() & METRICS.keys()):
        raise ValueError(f"{name} has a metric {repeated[0]}, as another task has; give it another name")
    TASKS[name] = task
    if isinstance(task, TunedTask):
        TUNED_TASKS[name] = task
    METRICS.update(metrics)
