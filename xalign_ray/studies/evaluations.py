"""Evaluations without training as Ray tasks: each scores one encoder on one task, into its cell's folder."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import ray

from xalign_ray.studies.cell_log import open_cell
from xalign_ray.studies.cells import Evaluation
from xalign_ray.tasks.registry import TASKS, load_task
from xalign_ray.tasks.scores import SCORES, write_scores
from xalign_ray.work.artifacts import EVALUATION_KIND, hash_file


def start_evaluation(cell: Evaluation, study: Path) -> Future[None]:
    """Starts an evaluation; its future has the error that it ended with."""
    resources = {"num_cpus": cell.resources.cpus, "num_gpus": cell.resources.gpus}
    return ray.remote(evaluate_cell).options(**resources).remote(cell, study.resolve()).future()


def evaluate_cell(cell: Evaluation, study: Path) -> None:
    """Scores one encoder on one task, and writes the manifest of the cell last."""
    folder = cell.folder(study)
    load_task(cell.task)
    with open_cell(study, cell) as job:
        scores = TASKS[cell.task].evaluate(cell.model, Path(cell.data[0]) if cell.data else None, cell.languages)
        write_scores(folder / SCORES, scores)
        files = {SCORES: hash_file(folder / SCORES)}
        job.finish({"kind": EVALUATION_KIND, "task": cell.task, "encoder": cell.model, "files": files})
