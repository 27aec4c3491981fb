"""Runs of one recipe laid over each other: a line each, and rings where they went on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.results.run_folders import open_folders, start, step, write_run
from xalign_ray.results.charts import Chart, curves_of, loss_frame, training_chart

LOSSES = [6.0, 5.0, 4.5, 4.0]
Events = list[dict[str, Any]]


def steps(first: int, attempt: int, last: int = len(LOSSES), off: float = 0.0) -> Events:
    return [step(number, LOSSES[number - 1] + off, attempt) for number in range(first, last + 1)]


PLAIN = [start(), *steps(1, 1)]
KILLED = [start(), *steps(1, 1, last=3), start(2, 2), *steps(3, 2)]
RESCALED = [
    start(),
    *steps(1, 1, last=2),
    start(1, 2) | {"workers": 1},
    *steps(2, 2, last=2),
    *steps(3, 2, last=3, off=3e-6),
    start(3, 3),
    *steps(4, 3),
]


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """A plain run, one that was killed, and one that went on with one worker and then with two."""
    runs = {"plain": PLAIN, "killed": KILLED, "rescaled": RESCALED}
    return [write_run(tmp_path / name, events=events) for name, events in runs.items()]


def chart_of(folders: list[Path]) -> Chart:
    runs = open_folders(folders)
    chart = training_chart(runs, loss_frame(runs))
    assert chart is not None
    return chart


def test_a_plain_a_killed_and_a_rescaled_run_lie_over_each_other(folders: list[Path]) -> None:
    chart, labels = chart_of(folders), [f"tiny/mlm ({name})" for name in ("plain", "killed", "rescaled")]
    assert (list(chart.panels), list(chart.styles)) == (["masked LM loss"], labels)
    losses = loss_frame(open_folders(folders))
    curves = curves_of(losses.rename(columns={"series": "panel", "step": "x", "run": "across"}))
    for label in labels:
        own = curves[(curves.label == label) & (curves.panel == "train/loss_masked_lm")]
        assert own["mean"].tolist() == pytest.approx(LOSSES)
    assert chart.rings == {labels[1]: [2], labels[2]: [1, 3]}


def test_without_a_restart_there_is_no_ring(tmp_path: Path) -> None:
    runs = {"plain": PLAIN, "died early": [start(), start(0, 2), *steps(1, 2)]}
    chart = chart_of([write_run(tmp_path / name, events=events) for name, events in runs.items()])
    assert not chart.rings
