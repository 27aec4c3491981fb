"""Fine-tunings as trials of Ray Tune: taken from a queue as resources come free, retried once, or stopped early."""

from __future__ import annotations

import io
import logging
import os
import shutil
import uuid
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler
from ray.tune.search import Searcher

from xalign_ray.artifacts import read_manifest, write_json
from xalign_ray.experiments.cell_log import Notes, cell_logged, close_log, log_epoch
from xalign_ray.experiments.cells import FAILED, STOP_MARK, STOPPED, TOKENIZED, Cell, FineTune, cell_folder, state_of
from xalign_ray.finetune.tune import tune_task
from xalign_ray.tasks.registry import TUNED_TASKS

RETRIES = 1  # of a fine-tuning that died or failed, before it is reported; the others go on


@dataclass(frozen=True, slots=True)
class Halving:
    """Asynchronous successive halving (ASHA, arXiv 1810.05934), among fine-tunings that differ in settings only.

    Attributes:
        grace_epochs: before them no trial is stopped; the next look is after `factor` times as many, and so on.
        factor: one in so many trials goes on.
        max_epochs: that any trial has.
    """

    grace_epochs: int
    factor: float
    max_epochs: int


@dataclass(frozen=True)
class TrialQueue:
    """Where trials come from, and who hears of their ends.

    Attributes:
        take: the next fine-tuning whose resources are free, with its notes; None while there is none.
        ended: told the fine-tuning, its state and, if it failed, why.
    """

    take: Callable[[], tuple[Cell, Notes] | None]
    ended: Callable[[Cell, str, str], None]


def run_trials(queue: TrialQueue, study: Path, keep_models: bool, scheduler: HalvingByGroup) -> None:
    """Runs fine-tunings until none runs and none can be taken. Tune sees their development scores only.

    Args:
        queue: of fine-tunings that have not ended.
        study: the study's folder, which every node sees.
        keep_models: whether fine-tuned models stay.
        scheduler: says which trials go on; the same one as long as the study runs.
    """
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # the trials have logs of their own
    os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # it would turn Ctrl-C into trials that never ran
    os.environ.setdefault("TUNE_MAX_PENDING_TRIALS_PG", "64")  # the queue gives out no more than fit
    for noisy in ("ray.tune.execution.tune_controller", "ray.tune.tune"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)  # tracebacks of trials whose failures are reported anyway
    storage, supply = study / "ray", _Supply(queue, study.resolve(), keep_models)
    tuner = tune.Tuner(
        tune.with_resources(run_trial, _resources_of),
        tune_config=tune.TuneConfig(
            metric="development",
            mode="max",
            num_samples=-1,  # as many as the queue has
            search_alg=supply,
            reuse_actors=True,  # a process imports torch and transformers once, not once a trial
            scheduler=scheduler,
        ),
        run_config=tune.RunConfig(
            name=f"trials-{uuid.uuid4().hex[:8]}",  # Tune continues a name that it knows, with the old trials
            storage_path=str(storage.resolve()),
            failure_config=tune.FailureConfig(max_failures=RETRIES),
            callbacks=[_Watch(queue, study)],
            verbose=0,
        ),
    )
    try:
        with redirect_stdout(io.StringIO()):  # Tune prints its table at verbose=0 too
            tuner.fit()
    finally:
        shutil.rmtree(storage, ignore_errors=True)


class _Supply(Searcher):
    """Gives Tune the trials of a queue one by one. It is over when none runs and none can run now."""

    def __init__(self, queue: TrialQueue, study: Path, keep_models: bool) -> None:
        super().__init__(metric="development", mode="max")
        self._queue = queue
        self._fixed = {"study": str(study), "keep_models": keep_models}
        self._running: set[str] = set()

    def set_search_properties(self, *_: Any, **__: Any) -> bool:
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]
        taken = self._queue.take()
        if taken is None:
            return None if self._running else Searcher.FINISHED
        self._running.add(trial_id)
        cell, notes = taken
        resources = {"CPU": cell.resources.cpus, "GPU": cell.resources.gpus}
        return self._fixed | {"cell": _Boxed(cell), "notes": asdict(notes), "resources": resources}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:  # noqa: ARG002
        self._running.discard(trial_id)

    def __getstate__(self) -> dict[str, Any]:
        """Tune keeps a copy for a `Tuner.restore` that is never called: studies go on by their files."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """As `__getstate__`."""

    def restore(self, checkpoint_path: str) -> None:
        """Never called."""


@dataclass(frozen=True)
class _Boxed:
    """A cell that Tune takes for one value, and does not search for things to search in."""

    cell: Cell

    def __str__(self) -> str:
        return self.cell.job.name


def _resources_of(config: dict[str, Any]) -> tune.PlacementGroupFactory:
    return tune.PlacementGroupFactory([{name: amount for name, amount in config["resources"].items() if amount}])


def run_trial(config: dict[str, Any]) -> None:
    """What a Tune worker does: the plain fine-tuning function; Tune hears of the development score of each epoch."""
    cell: Cell = config["cell"].cell
    job, study = cell.job, Path(config["study"])
    assert isinstance(job, FineTune)
    folder = cell_folder(study, cell)
    with cell_logged(folder, job, Notes(**config["notes"])) as log:

        def on_epoch(epoch: int, score: float) -> None:
            log_epoch(log, epoch, score)
            tune.report({"development": score, "epoch": epoch})  # where the scheduler gives the trial up, it ends here

        tune_task(
            TUNED_TASKS[job.task],
            job.model,
            [Path(path) for path in job.data],
            folder,
            languages=job.languages,
            settings=job.settings,
            training=job.training,
            train_language=job.train_language,
            on_epoch=on_epoch,
            cache=study / TOKENIZED,
            keep_model=config["keep_models"],
        )


class HalvingByGroup(FIFOScheduler):
    """One ASHA for each encoder, task and training: development scores of different tasks cannot be compared.

    Without a halving every trial goes on. It outlives the `Tuner`s that it is given to one after the other.
    """

    def __init__(self, halving: Halving | None) -> None:
        super().__init__()
        self._halving = halving
        self._groups: dict[str, ASHAScheduler] = {}

    def set_search_properties(self, *_: Any, **__: Any) -> bool:
        return True

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        if group := self._group_of(trial):
            group.on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        group = self._group_of(trial)
        return group.on_trial_result(tune_controller, trial, result) if group else self.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        if group := self._group_of(trial):
            group.on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        if group := self._group_of(trial):
            group.on_trial_remove(tune_controller, trial)

    def _group_of(self, trial: Any) -> ASHAScheduler | None:
        """None for the repetition of a chosen setting, which nothing competes with."""
        cell: Cell = trial.config["cell"].cell
        assert isinstance(cell.job, FineTune)
        if cell.after_choice or self._halving is None:
            return None
        if cell.job.search not in self._groups:
            self._groups[cell.job.search] = ASHAScheduler(
                time_attr="epoch",
                metric="development",
                mode="max",
                max_t=self._halving.max_epochs,
                grace_period=min(self._halving.grace_epochs, self._halving.max_epochs),
                reduction_factor=self._halving.factor,
                stop_last_trials=False,  # the last epoch is followed by the test
            )
        return self._groups[cell.job.search]


class _Watch(tune.Callback):
    """Marks trials that were stopped early, and passes on how each trial ended."""

    def __init__(self, queue: TrialQueue, study: Path) -> None:
        self._queue = queue
        self._study = study

    def __getstate__(self) -> dict[str, Any]:
        """As that of `_Supply`."""
        return {}

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ARG002
        cell: Cell = trial.config["cell"].cell
        folder = cell_folder(self._study, cell)
        if read_manifest(folder) is None:
            last = trial.last_result
            write_json(folder / STOP_MARK, {"epoch": last["epoch"], "development": last["development"]})
            close_log(folder, STOPPED)
        self._queue.ended(cell, state_of(folder), "")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ARG002
        # Tune brings this file to the storage later, where `trial.get_error` looks for it.
        said = Path(trial.error_file).read_text(encoding="utf-8") if trial.error_file else ""
        self._queue.ended(trial.config["cell"].cell, FAILED, last_line(said))


def last_line(said: str) -> str:
    """Of what went wrong: Ray puts the trial's own error at the end of its traceback."""
    lines = said.strip().splitlines()
    return lines[-1].removeprefix("xalign_ray.errors.") if lines else "it died"
