"""Runs the cells of a study in this process, one after the other: Ray's part is called here."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import one_after_the_other
from xalign_ray import pretraining
from xalign_ray.sources import stage
from xalign_ray.studies import queue, workers
from xalign_ray.studies.cells import PRETRAINING, Cell
from xalign_ray.studies.plan import Plan
from xalign_ray.studies.workers import run_cell
from xalign_ray.train import cluster
from xalign_ray.work.run_folder import RunFolder


class WorkersHere(workers.CellRunner):
    """Runs each cell when it is started."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._study, self._keep_models, self._started = folder, plan.study.keep_models, []

    def start(self, job: Cell) -> Future[Any]:
        if job.recipe:
            return super().start(job)
        future: Future[None] = Future()
        run_cell(job, self._study, self._keep_models)
        future.set_result(None)
        return future


def run_cells_here(patch: pytest.MonkeyPatch, ran: list[str], connected: list[str]) -> None:
    """Ray is not started.

    Args:
        patch: of the test that wants it.
        ran: gets the name of each cell that runs.
        connected: gets a word each time that a cluster is asked for.
    """

    class Named(WorkersHere):
        def start(self, job: Cell) -> Future[Any]:
            if job.kind != PRETRAINING:
                ran.append(job.name)
            return super().start(job)

    patch.setattr(queue, "CellRunner", Named)
    for asked in ("cluster_resources", "available_resources"):
        patch.setattr(queue.ray, asked, lambda: {"CPU": 4.0})
    patch.setattr(queue, "lasting_nodes", lambda: [{"Resources": {"CPU": 4.0}}])
    patch.setattr(cluster, "connect", lambda *_: connected.append("connected"))


def pretrain_here(patch: pytest.MonkeyPatch) -> None:
    """Pretrainings too, with `run_cells_here`: as `pretrain --no-ray` does, with one worker."""

    def in_this_thread(cell: Cell) -> Future[Path]:
        future: Future[Path] = Future()
        future.set_result(RunFolder(pretraining.pretrain(cell.recipe, local=True)).export)
        return future

    patch.setattr(stage, "_run_tasks", one_after_the_other)
    patch.setattr(workers, "_in_thread", in_this_thread)
