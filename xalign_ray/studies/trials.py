"""Fine-tunings as trials of Ray Tune: taken from a queue as resources come free, retried once, or stopped early."""

from __future__ import annotations

import io
import logging
import os
import shutil
import uuid
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler
from ray.tune.search import Searcher

from xalign_ray.finetune.tune import tune_task
from xalign_ray.studies.cell_log import close_log, open_cell
from xalign_ray.studies.cells import FAILED, STOP_MARK, STOPPED, TOKENIZED, Trial, state_of
from xalign_ray.studies.declared import AshaSearch, Search
from xalign_ray.tasks.registry import TUNED_TASKS, load_task
from xalign_ray.work.artifacts import read_manifest, write_json

RETRIES = 1  # of a fine-tuning that died or failed, before it is reported; the others go on
TRIAL = "trial"  # in what Tune calls the configuration of a trial

Take = Callable[[], Trial | None]
"""Gives the next fine-tuning whose resources are free; None while there is none."""
Ended = Callable[[Trial, str, str], None]
"""Told of a fine-tuning that has ended, its state and, if it failed, why."""


def run_trials(take: Take, ended: Ended, study: Path, keep_models: bool, scheduler: HalvingBySearch | None) -> None:
    """Runs fine-tunings until none runs and none can be taken. Tune sees their development scores only.

    Args:
        take: gives those that have not ended.
        ended: told of each that ends.
        study: the study's folder, which every node sees.
        keep_models: whether fine-tuned models stay.
        scheduler: of `scheduler_of`, the same one as long as the study runs.
    """
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # the trials have logs of their own
    os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # it would turn Ctrl-C into trials that never ran
    os.environ.setdefault("TUNE_MAX_PENDING_TRIALS_PG", "64")  # the queue gives out no more than fit
    for noisy in ("ray.tune.execution.tune_controller", "ray.tune.tune"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)  # tracebacks of trials whose failures are reported anyway
    storage, trial = study / "ray", partial(run_trial, study=study.resolve(), keep_model=keep_models)
    tuner = tune.Tuner(
        tune.with_resources(trial, _resources_of),
        tune_config=tune.TuneConfig(
            metric="development",
            mode="max",
            num_samples=-1,  # as many as the queue has
            search_alg=_Supply(take),
            reuse_actors=True,  # a process imports torch and transformers once, not once a trial
            scheduler=scheduler,
        ),
        run_config=tune.RunConfig(
            name=f"trials-{uuid.uuid4().hex[:8]}",  # Tune continues a name that it knows, with the old trials
            storage_path=str(storage.resolve()),
            failure_config=tune.FailureConfig(max_failures=RETRIES),
            callbacks=[_Watch(ended, study)],
            verbose=0,
        ),
    )
    try:
        with redirect_stdout(io.StringIO()):  # Tune prints its table at verbose=0 too
            tuner.fit()
    finally:
        shutil.rmtree(storage, ignore_errors=True)


def run_trial(config: dict[str, Any], study: Path, keep_model: bool) -> None:
    """What a Tune worker does: the plain fine-tuning function; Tune hears of the development score of each epoch."""
    trial: Trial = config[TRIAL]
    load_task(trial.task)
    with open_cell(study, trial) as job:
        log = job.log
        assert log

        def on_epoch(epoch: int, score: float) -> None:
            log.write("held_out", epoch, {"fine_tune/dev_score": score})
            tune.report({"development": score, "epoch": epoch})  # where the scheduler gives the trial up, it ends here

        tune_task(
            TUNED_TASKS[trial.task],
            trial.model,
            [Path(path) for path in trial.data],
            trial.folder(study),
            languages=trial.languages,
            settings=trial.settings,
            training=trial.training,
            train_language=trial.train_language,
            on_epoch=on_epoch,
            cache=study / TOKENIZED,
            keep_model=keep_model,
        )


def _resources_of(config: dict[str, Any]) -> tune.PlacementGroupFactory:
    own = config[TRIAL].resources
    return tune.PlacementGroupFactory([{"CPU": own.cpus} | ({"GPU": own.gpus} if own.gpus else {})])


class _NotKept:
    """Tune keeps a copy for a `Tuner.restore` that is never called: studies go on by their files."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class _Supply(_NotKept, Searcher):
    """Gives Tune the trials of a queue one by one. It is over when none runs and none can run now."""

    def __init__(self, take: Take) -> None:
        super().__init__(metric="development", mode="max")
        self._take = take
        self._running: set[str] = set()

    def set_search_properties(self, *_: Any, **__: Any) -> bool:
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]
        taken = self._take()
        if taken is None:
            return None if self._running else Searcher.FINISHED
        self._running.add(trial_id)
        return {TRIAL: taken}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:  # noqa: ARG002
        self._running.discard(trial_id)

    def save(self, checkpoint_path: str) -> None:
        """As `_NotKept`."""

    def restore(self, checkpoint_path: str) -> None:
        """Never called."""


def scheduler_of(search: Search, max_epochs: int) -> HalvingBySearch | None:
    """Says which trials of a study go on; None where all do: each `Tuner` then makes a scheduler that it alone uses."""
    return HalvingBySearch(search, max_epochs) if isinstance(search, AshaSearch) else None


class HalvingBySearch(FIFOScheduler):
    """Asynchronous successive halving (ASHA, arXiv 1810.05934), one for each encoder, task and kind of training.

    Development scores of different tasks cannot be compared. It outlives the `Tuner`s that it is given to.
    """

    def __init__(self, search: AshaSearch, max_epochs: int) -> None:
        super().__init__()
        self._halving = {
            "time_attr": "epoch",
            "metric": "development",
            "mode": "max",
            "max_t": max_epochs,
            "grace_period": min(search.grace_epochs, max_epochs),
            "reduction_factor": search.reduction_factor,
            "stop_last_trials": False,  # the last epoch is followed by the test
        }
        self._groups: dict[Any, FIFOScheduler] = {None: FIFOScheduler()}  # it has those that compete with none

    def set_search_properties(self, *_: Any, **__: Any) -> bool:
        return True

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        self._group_of(trial).on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        return self._group_of(trial).on_trial_result(tune_controller, trial, result)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        self._group_of(trial).on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        self._group_of(trial).on_trial_remove(tune_controller, trial)

    def _group_of(self, trial: Any) -> FIFOScheduler:
        own: Trial = trial.config[TRIAL]
        key = None if own.after_choice else own.search
        if key not in self._groups:
            self._groups[key] = ASHAScheduler(**self._halving)
        return self._groups[key]


class _Watch(_NotKept, tune.Callback):
    """Marks trials that were stopped early, and passes on how each trial ended."""

    def __init__(self, ended: Ended, study: Path) -> None:
        self._ended = ended
        self._study = study

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ARG002
        own: Trial = trial.config[TRIAL]
        folder = own.folder(self._study)
        if read_manifest(folder) is None:
            last = trial.last_result
            write_json(folder / STOP_MARK, {"epoch": last["epoch"], "development": last["development"]})
            close_log(folder, STOPPED)
        self._ended(own, state_of(folder), "")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ARG002
        # Tune brings this file to the storage later, where `trial.get_error` looks for it.
        said = Path(trial.error_file).read_text(encoding="utf-8") if trial.error_file else ""
        self._ended(trial.config[TRIAL], FAILED, last_line(said))


def last_line(said: str) -> str:
    """Of what went wrong: Ray puts the trial's own error at the end of its traceback."""
    lines = said.strip().splitlines()
    return lines[-1].removeprefix("xalign_ray.errors.") if lines else "it died"
