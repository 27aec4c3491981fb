"""Runs the cells of a study: a thread per pretraining by recipe, tasks of Ray for all others."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from xalign_ray import pretraining
from xalign_ray.errors import DataError
from xalign_ray.finetune.tune import tune_task
from xalign_ray.studies.cells import FINETUNING, FINISHED, STOPPED, TOKENIZED, WAITING, Cell
from xalign_ray.studies.command import run_command
from xalign_ray.studies.plan import Plan
from xalign_ray.tasks.registry import TASKS, TUNED_TASKS, load_task
from xalign_ray.tasks.scores import SCORES, are_whole, write_scores
from xalign_ray.track.events import EVENT_LOG, EventLog, last_event, run_identity
from xalign_ray.track.scored_encoder import scoring_identity
from xalign_ray.work.artifacts import EVALUATION_KIND, HOST, hash_file, whole_manifest, write_json
from xalign_ray.work.job import OpenJob, open_job
from xalign_ray.work.run_folder import PREDICTIONS, RunFolder

STOP_MARK = "stopped.json"  # of a fine-tuning that was stopped early: it has no manifest, and is not run again


@dataclass(frozen=True)
class End:
    """How a cell ended, by its folder.

    Attributes:
        state: FINISHED, STOPPED, or WAITING where the folder is not whole.
        development: development score of a fine-tuning that finished.
        seconds: wall time; None where the process was killed before it wrote the end of its log.
    """

    state: str
    development: float | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        what = self.state if self.development is None else f"development {self.development:.3f}"
        return what if self.seconds is None else f"{what}, {self.seconds:.0f} s"


class _StoppedEarlyError(Exception):
    """Ends a fine-tuning after an epoch, with its epoch and development score."""


def run_cell(cell: Cell, study: Path, keep_model: bool, halving: Any = None) -> None:
    """Runs a cell; its event log has the start, each epoch and the end, and its manifest is written last.

    In MLflow it is shown below its study, or below the encoder's run where the study has no log (`tune`).

    Args:
        cell: a command, or an evaluation or a fine-tuning whose encoder is there.
        study: folder of the study.
        keep_model: whether the fine-tuned model is kept.
        halving: actor of `Halving` that may stop a fine-tuning after an epoch, which is then marked as stopped.

    Raises:
        DataError: this node does not see the folder of the study, or the one in which it was started.
    """
    for shared in (study, *([cell.source.root] if cell.command else ())):
        if not shared.is_dir():
            raise DataError(
                f"{shared} is not there on {HOST}. All nodes must see --out, and the folder in which a study with "
                "commands is started: put them on shared storage."
            )
    if cell.command:
        return run_command(cell, study)
    load_task(cell.task)
    folder = cell.folder(study)
    identity = scoring_identity(
        fingerprint=cell.name,
        title=cell.title,
        model=cell.model,
        label=cell.encoder,
        languages=cell.languages,
        params=cell.params,
        parent=run_identity(study),
        steps=cell.settings.num_train_epochs if cell.settings else 0,
    )
    try:
        with open_job(folder, cell.kind, identity, upload=None) as job:  # the study uploads it
            if cell.kind == FINETUNING:
                _fine_tune(cell, study, keep_model, halving, job)
            else:
                _evaluate(cell, folder, job)
    except _StoppedEarlyError as stopped:
        epoch, score = stopped.args
        write_json(folder / STOP_MARK, {"epoch": epoch, "development": score})
        read_end(folder)


def _evaluate(cell: Cell, folder: Path, job: OpenJob) -> None:
    task, predictions = TASKS[cell.task], folder / PREDICTIONS
    shutil.rmtree(predictions, ignore_errors=True)
    options: dict[str, Any] = {PREDICTIONS: predictions} if task.keeps_predictions else {}
    data = Path(cell.data[0]) if cell.data else None
    write_scores(folder / SCORES, task.evaluate(cell.model, data, cell.languages, **options))
    written = [folder / SCORES, *sorted(predictions.glob("*"))]
    files = {path.relative_to(folder).as_posix(): hash_file(path) for path in written}
    job.finish({"kind": EVALUATION_KIND, "task": cell.task, "encoder": cell.model, "files": files})


def _fine_tune(cell: Cell, study: Path, keep_model: bool, halving: Any, job: OpenJob) -> None:
    def on_epoch(epoch: int, score: float) -> None:
        assert job.log
        job.log.write("held_out", epoch, {"fine_tune/dev_score": score})
        if halving and not cell.after_choice:
            search = tuple(cell.search.values())
            if not ray.get(halving.goes_on.remote(cell.name, search, epoch, score)):
                raise _StoppedEarlyError(epoch, score)

    tune_task(
        TUNED_TASKS[cell.task],
        cell.model,
        [Path(path) for path in cell.data],
        cell.folder(study),
        languages=cell.languages,
        settings=cell.settings,
        training=cell.training,
        train_language=cell.train_language,
        on_epoch=on_epoch,
        cache=study / TOKENIZED,
        keep_model=keep_model,
    )


def read_end(folder: Path) -> End:
    """How a cell ended. A log whose process was killed after its last file gets its end."""
    manifest, log = whole_manifest(folder, "kind"), folder / EVENT_LOG
    last = last_event(log)
    if manifest is not None and are_whole(folder / SCORES):
        end = End(FINISHED, manifest.get("development"), seconds_of(folder))
    else:
        end = End(STOPPED if (folder / STOP_MARK).is_file() else WAITING)
    if end.state != WAITING and last and last["event"] != "end":
        with EventLog(log, last["attempt"]) as again:
            again.write("end", last["step"], state=end.state)
    return end


def seconds_of(folder: Path) -> float | None:
    """Wall time of the last attempt of a run or cell; None if it has not ended, or was killed."""
    return last_event(folder / EVENT_LOG).get("metrics", {}).get("run/seconds")


class CellRunner:
    """Starts cells: pretrainings by recipe in a thread, all others as tasks of Ray with their resources.

    Ray runs tasks of equal CPUs in one process after the other, so that torch is imported once in each. A task with a
    GPU has its own process, so that the GPU's memory is freed at its end.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._study, self._keep_models = folder.resolve(), plan.study.keep_models
        self._started: list[Any] = []
        self._halving = None
        if (options := plan.study.search.asha) is not None:
            epochs = max((cell.settings.num_train_epochs for cell in plan.cells if cell.settings), default=1)
            self._halving = ray.remote(Halving).options(num_cpus=0).remote({"max_t": epochs} | options)

    def start(self, cell: Cell) -> Future[Any]:
        """Starts a cell. The future of a recipe has the export's folder; that of a failed cell has the error."""
        if cell.recipe:
            return _in_thread(cell)
        needs = cell.resources
        task: Any = ray.remote(run_cell).options(
            num_cpus=needs.cpus, num_gpus=needs.gpus, memory=needs.named.get("memory"), max_retries=0
        )
        sent = replace(cell, needs=None, source=replace(cell.source, pretraining=None))
        self._started.append(task.remote(sent, self._study, self._keep_models, self._halving))
        return self._started[-1].future()

    def __enter__(self) -> CellRunner:
        return self

    def __exit__(self, *_: object) -> None:
        for started in self._started:
            ray.cancel(started, force=True)  # an ended task is not changed


class Halving:
    """An actor with Ray Tune's asynchronous successive halving (ASHA, arXiv 1810.05934), one schedule a search:
    development scores of different tasks cannot be compared.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        # After the last epoch there is a test.
        fixed = {"time_attr": "epoch", "metric": "development", "mode": "max", "stop_last_trials": False}
        self._options = {"reduction_factor": 3, **options, **fixed}
        self._schedulers: dict[tuple[str, ...], Any] = {}
        self._trials: dict[str, SimpleNamespace] = {}

    def goes_on(self, name: str, search: tuple[str, ...], epoch: int, development: float) -> bool:
        """Whether a fine-tuning goes on, compared with the trials of its search that have come as far."""
        from ray.tune.schedulers import ASHAScheduler, TrialScheduler  # two seconds of the driver, which needs none

        scheduler = self._schedulers.setdefault(search, ASHAScheduler(**self._options))
        if name not in self._trials:
            self._trials[name] = SimpleNamespace(trial_id=name)  # all that the scheduler reads of a trial
            scheduler.on_trial_add(None, self._trials[name])
        result = {"epoch": epoch, "development": development}
        return scheduler.on_trial_result(None, self._trials[name], result) != TrialScheduler.STOP


def failure_reason(error: BaseException) -> str:
    """One sentence on why a cell failed; Ray wraps the cell's own error in its traceback."""
    if isinstance(error, RayTaskError):
        return f"{type(error.cause).__name__}: {error.cause}"
    lines = str(error).strip().splitlines()
    return lines[-1] if isinstance(error, RayError) and lines else str(error) or "it died"


def _in_thread(cell: Cell) -> Future[Path]:
    """The driver of Ray Train, in a daemon: a second stop signal ends the process without waiting."""
    future: Future[Path] = Future()

    def run() -> None:
        try:
            future.set_result(RunFolder(pretraining.pretrain(cell.recipe, title=cell.title)).export)
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="pretraining", daemon=True).start()
    return future
