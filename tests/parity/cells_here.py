"""Runs the cells of a study in this process, one after the other: what Ray calls on a worker is called here."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path

import pytest

from xalign_ray.experiments import evaluations, schedule, trials
from xalign_ray.experiments.cell_log import Notes
from xalign_ray.experiments.cells import FINISHED, Cell
from xalign_ray.experiments.trials import TrialQueue
from xalign_ray.train import driver


def run_cells_here(patch: pytest.MonkeyPatch, ran: list[str], connected: list[str]) -> None:
    """Ray is not started.

    Args:
        patch: of the test that wants it.
        ran: gets the name of each cell that runs.
        connected: gets a word each time that a cluster is asked for.
    """

    def run_trials(queue: TrialQueue, study: Path, keep_models: bool, *_: object) -> None:
        while taken := queue.take():
            cell, notes = taken
            ran.append(cell.job.name)
            config = {"study": str(study), "keep_models": keep_models, "cell": trials._Boxed(cell)}
            trials.run_trial(config | {"notes": asdict(notes)})
            queue.ended(cell, FINISHED, "")

    def start_evaluation(cell: Cell, notes: Notes, study: Path) -> Future[None]:
        future: Future[None] = Future()
        ran.append(cell.job.name)
        evaluations.evaluate_cell(cell, notes, str(study))
        future.set_result(None)
        return future

    patch.setattr(schedule, "run_trials", run_trials)
    patch.setattr(schedule, "start_evaluation", start_evaluation)
    patch.setattr(schedule.ray, "cluster_resources", lambda: {"CPU": 4.0})
    patch.setattr(trials.tune, "report", lambda _: None)
    patch.setattr(driver, "connect", lambda *_: connected.append("connected"))
