"""Runs the cells of a study in this process, one after the other: what Ray calls on a worker is called here."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.unit.data.conftest import one_after_the_other
from xalign_ray import pipeline
from xalign_ray.data import prepare
from xalign_ray.studies import evaluations, schedule, trials
from xalign_ray.studies.cells import FINISHED, Evaluation, Pretraining
from xalign_ray.studies.trials import Ended, Take
from xalign_ray.train import driver


def run_cells_here(patch: pytest.MonkeyPatch, ran: list[str], connected: list[str]) -> None:
    """Ray is not started.

    Args:
        patch: of the test that wants it.
        ran: gets the name of each cell that runs.
        connected: gets a word each time that a cluster is asked for.
    """

    def run_trials(take: Take, ended: Ended, study: Path, keep_models: bool, _: object) -> None:
        while trial := take():
            ran.append(trial.name)
            trials.run_trial({trials.TRIAL: trial}, study, keep_models)
            ended(trial, FINISHED, "")

    def start_evaluation(cell: Evaluation, study: Path) -> Future[None]:
        future: Future[None] = Future()
        ran.append(cell.name)
        evaluations.evaluate_cell(cell, study)
        future.set_result(None)
        return future

    patch.setattr(schedule, "run_trials", run_trials)
    patch.setattr(schedule, "start_evaluation", start_evaluation)
    patch.setattr(schedule.ray, "cluster_resources", lambda: {"CPU": 4.0})
    patch.setattr(trials.tune, "report", lambda _: None)
    patch.setattr(driver, "connect", lambda *_: connected.append("connected"))


def pretrain_here(patch: pytest.MonkeyPatch) -> None:
    """Pretrainings too, with `run_cells_here`: as `pretrain --no-ray` does, with one worker."""

    def in_this_thread(cell: Pretraining) -> Future[Path]:
        future: Future[Path] = Future()
        future.set_result(pipeline.pretrain(cell.recipe, local=True))
        return future

    patch.setattr(prepare, "_run_tasks", one_after_the_other)
    patch.setattr(schedule, "_in_thread", in_this_thread)
