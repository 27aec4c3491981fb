"""Runs of one recipe laid over each other: a line each, with a ring where one went on from a checkpoint."""

from __future__ import annotations

from pathlib import Path

from tests.unit.report.run_folders import start, step, write_run
from xalign_ray.report.charts import training_chart
from xalign_ray.report.columns import group_runs
from xalign_ray.report.figures import RESTARTED, draw
from xalign_ray.report.run import read_run

LOSSES = [6.0, 5.0, 4.5, 4.0]


def steps(first: int, attempt: int) -> list[dict]:
    return [step(number, LOSSES[number - 1], attempt) for number in range(first, len(LOSSES) + 1)]


def chart_of(tmp_path: Path, runs: dict[str, list[dict]]):
    folders = [write_run(tmp_path / name, events=events) for name, events in runs.items()]
    return training_chart(group_runs([read_run(folder) for folder in folders]))


def test_a_plain_a_killed_and_a_rescaled_run_lie_over_each_other(tmp_path: Path) -> None:
    chart = chart_of(
        tmp_path,
        {
            "plain": [start(), *steps(1, 1)],
            "killed": [start(), *steps(1, 1)[:3], start(2, attempt=2), *steps(3, 2)],
            "rescaled": [
                start(),
                step(1, 6.0),
                start(1, 2),
                step(2, 5.0, 2),
                step(3, 4.5, 2),
                start(3, 3),
                *steps(4, 3),
            ],
        },
    )
    assert chart is not None
    (panel,) = chart.panels
    assert [curve.label for curve in panel.curves] == [f"tiny/mlm ({name})" for name in ("plain", "killed", "rescaled")]
    assert all(curve.mean.tolist() == LOSSES for curve in panel.curves)
    assert [curve.restarts for curve in panel.curves] == [(), (2,), (1, 3)]
    assert RESTARTED in draw(chart)


def test_without_a_restart_there_is_no_ring(tmp_path: Path) -> None:
    chart = chart_of(tmp_path, {"plain": [start(), *steps(1, 1)], "died early": [start(), start(0, 2), *steps(1, 2)]})
    assert chart is not None
    assert RESTARTED not in draw(chart)
