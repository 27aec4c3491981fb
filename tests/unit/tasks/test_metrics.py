"""The one table of metrics: every task's are in it, and a score of another is refused."""

from __future__ import annotations

import re

from xalign_ray.tasks import BENCHMARKS
from xalign_ray.tasks.registry import METRICS, TUNED_TASKS
from xalign_ray.tasks.task import CORRELATION, COSINE, PREMIUM, SHARE
from xalign_ray.tasks.task_files import example_of, name_pattern


def test_no_name_can_be_taken_for_one_of_a_run() -> None:
    assert [name for name in METRICS if not re.fullmatch(r"[a-z0-9_]+|mteb:\w+", name)] == []


def test_what_decides_between_epochs_is_there_zero_shot_and_supervised() -> None:
    for task in TUNED_TASKS.values():
        assert METRICS[task.metric].of_tuned_head
        assert METRICS[f"{task.metric}_supervised"].title == (
            f"{METRICS[task.metric].title}, fine-tuned on the language itself"
        )


def test_a_share_has_a_direction_and_what_describes_has_none() -> None:
    assert {metric.unit for metric in METRICS.values()} == {SHARE, COSINE, PREMIUM, CORRELATION}
    assert all(metric.higher_is_better is True for metric in METRICS.values() if metric.unit in (SHARE, CORRELATION))
    of_cosines = {metric.name: metric.higher_is_better for metric in METRICS.values() if metric.unit == COSINE}
    of_premiums = {metric.higher_is_better for metric in METRICS.values() if metric.unit == PREMIUM}
    assert {*of_cosines.values()} == of_premiums == {None}


def test_a_row_of_the_table_says_what_its_class_asks_for() -> None:
    for name, row in BENCHMARKS.items():
        task = TUNED_TASKS[name]
        known = {key for one in type(task).mro() for key in getattr(one, "__annotations__", {})}
        assert row.keys() - {"task"} <= known, name
        for file in (*task.files, *task.lent):
            example = example_of(re.sub(r"\((\w+).*?\)", r"\1", file)).replace("*", "x")
            assert name_pattern(file, task.codes).fullmatch(example), file
