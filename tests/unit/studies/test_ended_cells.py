"""The end of a cell plans no cell anew and reads the files of no other; a search releases its repetitions alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from xalign_ray.studies import record
from xalign_ray.studies.cells import FAILED, FINISHED, NOT_CHOSEN, WAITING, Trial
from xalign_ray.studies.declared import load_study
from xalign_ray.studies.plan import Plan, plan_study
from xalign_ray.studies.record import write_record
from xalign_ray.studies.schedule import Schedule
from xalign_ray.tasks.scores import Score, write_scores
from xalign_ray.work.artifacts import read_json, write_manifest

ENCODERS = 4
STUDY = f"""
name: many
mlflow: "off"
root: .
encoders: [{", ".join(f"{{model: /m{number}, label: m{number}}}" for number in range(ENCODERS))}]
finetunings:
  - {{task: pos, data: pos, languages: [en], seeds: [0, 1], settings: {{learning_rate: [1.0e-5, 2.0e-5, 3.0e-5]}}}}
"""


class NoGauges:
    def show(self, counts: dict[str, int]) -> None:
        """Nobody looks."""


def open_study(folder: Path, search: str) -> Schedule:
    (folder / "study.yaml").write_text(STUDY + search)
    schedule = Schedule(plan_study(load_study(str(folder / "study.yaml")), folder, str), folder / "study")
    schedule._gauges, schedule._ended = NoGauges(), lambda _: write_record(schedule)  # type: ignore[assignment]
    return schedule


def end(schedule: Schedule, cell: Trial, development: float | None = None) -> None:
    """As a fine-tuning ends: its files are there, and the schedule is told."""
    if development is not None:
        score = {"run": None, "encoder": "m", "objective": None, "task": "pos", "split": "test", "language": "en"}
        score |= {"metric": "pos_accuracy", "value": 0.5, "chance": None, "n": 1, "seed": 0, "step": None}
        write_scores(cell.folder(schedule.folder) / "scores.json", [Score(**score)])
        write_manifest(cell.folder(schedule.folder), {"kind": "tuned", "development": development})
    schedule._running[cell] = None
    schedule._end(cell, FAILED if development is None else FINISHED, "" if development else "it died")


def test_the_end_of_a_cell_costs_the_same_whatever_the_number_of_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = open_study(tmp_path, "")
    planned, read = Counter[str](), Counter[str]()
    jobs, describe = Plan.jobs, record.describe

    def count_plans(plan: Plan, models: Any) -> Any:
        planned["all cells"] += 1
        return jobs(plan, models)

    def count_reads(schedule: Schedule, job: Any) -> Any:
        read[f"{job} {schedule.states[job]}"] += 1
        return describe(schedule, job)

    monkeypatch.setattr(Plan, "jobs", count_plans)
    monkeypatch.setattr(record, "describe", count_reads)
    cells = schedule.trials
    for number, cell in enumerate(cells):
        end(schedule, cell, None if number % 5 == 0 else 0.5)
    assert len(cells) == 6 * ENCODERS
    assert planned["all cells"] == 0
    assert max(read.values()) == 1, "once for each state that a cell comes to"
    assert read.total() <= 2 * len(cells)
    states = Counter(cell["state"] for cell in read_json(schedule.folder / "study.json", "")["cells"])
    assert states == Counter(schedule.states.values())


def test_repetitions_run_of_the_setting_that_their_search_chose(tmp_path: Path) -> None:
    schedule = open_study(tmp_path, "search: {kind: asha, num_samples: 3}\n")
    searched = [cell for cell in schedule.trials if not cell.after_choice]
    first = [cell for cell in searched if cell.encoder == "m0"]
    assert len(first) > 1
    for number, cell in enumerate(first):
        assert not schedule._released
        end(schedule, cell, 0.1 * (number + 1))
    best = first[-1].setting
    later = [cell for cell in schedule.trials if cell.after_choice and cell.encoder == "m0"]
    assert len(later) == len(first)
    assert all(schedule.states[cell] == (WAITING if cell.setting == best else NOT_CHOSEN) for cell in later)
    assert schedule._released == {cell for cell in later if cell.setting == best}
    others = [cell for cell in schedule.trials if cell.after_choice and cell.encoder != "m0"]
    assert not any(schedule._can_start(cell) for cell in others)
    again = Schedule(schedule.plan, schedule.folder)
    assert again._released == schedule._released, "a study that is opened again goes on so"


def test_a_cell_that_ends_without_scores_fails_and_is_not_run_again(tmp_path: Path) -> None:
    schedule = open_study(tmp_path, "")
    cell = schedule.trials[0]
    schedule._running[cell] = None
    schedule._end(cell, WAITING)
    assert not schedule._can_start(cell)
    assert schedule.failures[cell] == (
        f"it ended and left no scores in {schedule.folder}. Workers must see this folder, and run the same version of "
        "xalign_ray as the driver."
    )
