"""Evaluations without training as Ray tasks: each scores one encoder on one task, into its cell's folder."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import ray

from xalign_ray.artifacts import hash_file, write_manifest
from xalign_ray.experiments.cell_log import Notes, cell_logged
from xalign_ray.experiments.cells import EVALUATION_KIND, Cell, Evaluate, cell_folder
from xalign_ray.tasks.registry import TASKS
from xalign_ray.tasks.scores import SCORES, write_scores


def start_evaluation(cell: Cell, notes: Notes, study: Path) -> Future[None]:
    """Starts an evaluation; its future has the error that it ended with."""
    resources = {"num_cpus": cell.resources.cpus, "num_gpus": cell.resources.gpus}
    return ray.remote(evaluate_cell).options(**resources).remote(cell, notes, str(study.resolve())).future()


def evaluate_cell(cell: Cell, notes: Notes, study: str) -> None:
    """Scores one encoder on one task, and writes the manifest of the cell last."""
    job, folder = cell.job, cell_folder(Path(study), cell)
    assert isinstance(job, Evaluate)
    with cell_logged(folder, job, notes):
        data = Path(job.data) if job.data else None
        scores = TASKS[job.task](job.model, data, list(job.languages or ()) or None)
        write_scores(folder / SCORES, scores)
    files = {SCORES: hash_file(folder / SCORES)}
    write_manifest(folder, {"kind": EVALUATION_KIND, "task": job.task, "encoder": job.model, "files": files})
