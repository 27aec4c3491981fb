"""Seconds of a study's driver for the end of 1,480 cells: their files, study.json, the lines of progress, MLflow.

python tests/bench/ended_cells.py [ENCODERS]    each encoder has 40 cells; Ray is not started
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from xalign_ray.studies import queue
from xalign_ray.studies.cells import Trial
from xalign_ray.studies.declared import load_study
from xalign_ray.studies.mlflow_process import MlflowProcess
from xalign_ray.studies.plan import Plan, plan_study
from xalign_ray.studies.progress import Progress
from xalign_ray.tasks.scores import Score, write_scores
from xalign_ray.track.events import EVENT_LOG, EventLog
from xalign_ray.work.artifacts import write_manifest

ENCODERS = 37


class AtOnce:
    """A runner whose cells end as soon as they are started; what they write costs the driver nothing."""

    seconds = 0.0

    def __init__(self, _: Plan, folder: Path) -> None:
        self._study = folder

    def start(self, cell: Trial) -> Future[Any]:
        began = time.process_time()
        folder = cell.folder(self._study)
        score = {"run": None, "encoder": "m", "objective": None, "task": "pos", "split": "test", "language": "en"}
        score |= {"metric": "pos_accuracy", "value": 0.5, "chance": None, "n": 1, "seed": 0, "step": None}
        with EventLog(folder / EVENT_LOG, 1) as log:
            log.write("start", 0, fingerprint=cell.name, parent=None, params=cell.params)
            log.write("end", 1, {"run/seconds": 1.0})
        write_scores(folder / "scores.json", [Score(**score)])
        write_manifest(folder, {"kind": "tuned", "development": 0.5, "files": {}})
        AtOnce.seconds += time.process_time() - began
        future: Future[None] = Future()
        future.set_result(None)
        return future

    end = dismiss_free = __exit__ = lambda *_: None

    def __enter__(self) -> AtOnce:
        return self


def main(encoders: int) -> None:
    rates, seeds = [number * 1e-5 for number in range(1, 9)], [0, 1, 2, 3, 4]
    one = {"task": "pos", "data": "pos", "languages": ["en"], "seeds": seeds, "settings": {"learning_rate": rates}}
    models = [{"model": f"/m{number}", "label": f"m{number}"} for number in range(encoders)]
    with tempfile.TemporaryDirectory() as out, patch.object(queue, "CellRunner", AtOnce):
        file, folder = Path(out, "many.yaml"), Path(out, "study")
        file.write_text(yaml.safe_dump({"root": ".", "encoders": models, "finetunings": [one]}))
        study = queue.Queue(plan_study(load_study(str(file)), Path(out), str), folder)
        with EventLog(folder / EVENT_LOG, 1) as log:
            log.write("start", 0, recipe="studies/many", fingerprint="0" * 64, params={}, labels={})
        publisher = MlflowProcess(folder, f"sqlite:///{out}/mlflow.db", "many")
        progress = Progress(study, publisher)
        with patch.object(queue.ray, "cluster_resources", lambda: {"CPU": 1.0}):
            began = time.process_time()
            study.run(progress.report_end, progress.write_if_due)
            progress.write()
            seconds = time.process_time() - began - AtOnce.seconds
        sys.stdout.write(f"{len(study.jobs)} cells ended: {seconds:.1f} s of the driver's processor\n")
        if lacking := publisher.finish():
            sys.stdout.write(f"{lacking}\n")
        inside = os.times()
        sys.stdout.write(f"MLflow, in its own process: {inside.children_user + inside.children_system:.1f} s\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else ENCODERS)
