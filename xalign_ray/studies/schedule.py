"""Runs the cells of a study side by side: each starts when its encoder is there and its resources are free."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from xalign_ray import pipeline
from xalign_ray.config.load import Recipe
from xalign_ray.errors import ConfigError, DataError, StoppedError, XalignError
from xalign_ray.exports import export
from xalign_ray.studies.cell_log import close_log
from xalign_ray.studies.cells import (
    FAILED,
    FINISHED,
    NOT_CHOSEN,
    STOPPED,
    WAITING,
    Cell,
    Evaluation,
    Job,
    Pretraining,
    Trial,
    state_of,
)
from xalign_ray.studies.choice import Choice, choose
from xalign_ray.studies.evaluations import start_evaluation
from xalign_ray.studies.plan import Plan
from xalign_ray.studies.trials import last_line, run_trials, scheduler_of
from xalign_ray.train.ray_gauges import CellGauges
from xalign_ray.work import stops
from xalign_ray.work.artifacts import MANIFEST, whole_manifest
from xalign_ray.work.run_folder import RunFolder

LOOK_S = 0.1
NOT_SHARED = "Workers must see this folder, and run the same version of xalign_ray as the driver."
RUNNING = "running"  # as a gauge shows it; on disk such a cell is still waiting for its end


class Schedule:
    """A study at work. Jobs start in the order of the plan, and one that does not fit holds back those behind it.

    Attributes:
        plan: the study's.
        folder: of the study.
        models: folder or hub id of each encoder that is there.
        runs: folder of each pretraining that has finished.
        jobs: every cell, in the order of the plan.
        states: of each job; one at work is still waiting for its end.
        failures: of jobs that failed, why.
        described: what the record says of a job in a state, so that the end of one cell reads the files of no other.
    """

    _ended: Callable[[Job], None]
    _gauges: CellGauges
    _searching: Counter[tuple[str, ...]]  # fine-tunings of each search that have not ended
    _held: defaultdict[tuple[str, ...], list[Trial]]  # repetitions that wait for the choice of their search

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.models = {encoder: encoder.model for encoder in plan.encoders if encoder.model}
        self.runs: dict[Pretraining, Path] = {}
        self.jobs: list[Job] = []
        self.states: dict[Job, str] = {}
        self.failures: dict[Job, str] = {}
        self.described: dict[tuple[Job, str], dict[str, Any]] = {}
        self._running: dict[Job, Future[Any] | None] = {}  # Tune tells of the ends of fine-tunings
        self._released: set[Trial] = set()  # of a setting that was chosen, under other seeds
        self._saved: list[str] = []  # what pretrainings said that were told to stop
        for cell in plan.pretrainings:
            if model := _find_export(cell.recipe):
                self._add_model(cell, model)
        self._refresh()

    @property
    def is_over(self) -> bool:
        """Whether nothing runs and nothing is left that could."""
        return not self._running and self._next() is None

    @property
    def left(self) -> int:
        """How many cells have not ended."""
        return sum(self.states[job] == WAITING for job in self.jobs)

    @property
    def trials(self) -> list[Trial]:
        """The fine-tunings of encoders that are there."""
        return [job for job in self.jobs if isinstance(job, Trial) and job.model]

    @property
    def counts(self) -> dict[str, int]:
        """How many cells are in each state now; those at work are `running`."""
        states = Counter(RUNNING if job in self._running else self.states[job] for job in self.jobs)
        return {state: states[state] for state in (WAITING, RUNNING, FINISHED, STOPPED, FAILED, NOT_CHOSEN)}

    def run(self, ended: Callable[[Job], None]) -> None:
        """Runs everything that has not ended. Ray must be connected.

        A stop signal lets pretrainings save their steps, and then interrupts; nothing more is started.

        Args:
            ended: told of each job that ends; how is in `states` and `failures`.

        Raises:
            ConfigError: the cluster cannot hold one of the jobs even if nothing else ran.
            StoppedError: it was told to stop, and steps were saved.
        """
        self._check_resources()
        self._ended, study = ended, self.plan.study
        epochs = [job.settings.num_train_epochs for job in self.jobs if isinstance(job, Trial)]
        scheduler = scheduler_of(study.search, max(epochs, default=1))
        with stops.heeded(), closing(CellGauges(study.name)) as self._gauges:
            while not self.is_over:
                self._advance()
                if isinstance(self._next_that_fits(), Trial):
                    run_trials(self._take_trial, self._end, self.folder, study.keep_models, scheduler)
                elif not self.is_over:
                    time.sleep(LOOK_S)

    def choices(self, among: Sequence[Trial] | None = None) -> list[Choice]:
        """What is chosen among the fine-tunings that have finished so far, all if none are given."""
        trials = self.trials if among is None else among
        manifests = {cell.name: whole_manifest(cell.folder(self.folder), "development") for cell in trials}
        return choose(trials, {name: one["development"] for name, one in manifests.items() if one is not None})

    def _advance(self) -> None:
        """Takes notice of what has ended, and starts what can start now, but fine-tunings, which Tune takes."""
        for job, running in list(self._running.items()):
            if running is not None and running.done():
                self._notice_end(job, running)
        if stops.asked():
            if not any(isinstance(job, Pretraining) for job in self._running):
                if self._saved:
                    raise StoppedError("\n".join(self._saved), stops.exit_code(stops.asked()))
                stops.interrupt()
            return
        while (job := self._next_that_fits()) is not None and not isinstance(job, Trial):
            if isinstance(job, Pretraining):
                self._running[job] = _in_thread(job)
            elif isinstance(job, Evaluation) and self._has_model(job):
                self._running[job] = start_evaluation(job, self.folder)
        self._gauges.show(self.counts)

    def _notice_end(self, job: Job, running: Future[Any]) -> None:
        error = running.exception()
        if error is None:
            if isinstance(job, Pretraining):
                self._add_model(job, RunFolder(running.result()).export)
            self._end(job, FINISHED)
        elif stops.asked():
            del self._running[job]
            self._saved += [f"{job}: {error}"] if isinstance(error, StoppedError) else []
        elif isinstance(error, XalignError):
            self._end(job, FAILED, str(error))
        elif isinstance(error, RayError):
            self._end(job, FAILED, last_line(str(error)))
        else:
            raise error

    def _take_trial(self) -> Trial | None:
        self._advance()
        while isinstance(job := self._next_that_fits(), Trial):
            if self._has_model(job):
                self._running[job] = None
                self._gauges.show(self.counts)
                return job
        return None

    def _has_model(self, job: Cell) -> bool:
        """Makes the export that a cell is to score; without the checkpoint it fails, and the others go on."""
        try:
            export_step(job.model)
        except XalignError as error:
            self._running[job] = None
            self._end(job, FAILED, str(error))
            return False
        return True

    def _end(self, job: Job, state: str, reason: str = "") -> None:
        self._running.pop(job)
        if state == WAITING:  # it would be run again without end
            state, reason = FAILED, f"it ended and left no scores in {self.folder}. {NOT_SHARED}"
        self.states[job] = state
        if state == FAILED:
            self.failures[job] = reason
        if isinstance(job, Pretraining):
            self._refresh()
        elif isinstance(job, Trial) and not job.after_choice:
            self._searching[job.search] -= 1
            if not self._searching[job.search]:
                self._release(job.search)
        self._gauges.show(self.counts)
        self._ended(job)

    def _add_model(self, cell: Pretraining, model: Path) -> None:
        """A pretraining is done: what continues it, and what its encoder is for, can start."""
        self.states[cell], self.runs[cell] = FINISHED, model.parent
        for one in self.plan.encoders:
            if one.pretraining is cell:
                folder = model if one.step is None else RunFolder(model.parent).export_at(one.step)
                self.models[one] = str(folder.resolve())

    def _refresh(self) -> None:
        """Gives cells the models that have been made: when the study opens, and when a pretraining ends."""
        self.jobs = self.plan.jobs(self.models)
        for job in self.jobs:
            if job not in self.states:
                self.states[job] = WAITING
                if isinstance(job, Cell) and job.model and (state := state_of(job.folder(self.folder))) != WAITING:
                    close_log(job.folder(self.folder), state)
                    self.states[job] = state
        trials = [job for job in self.jobs if isinstance(job, Trial)]
        self._searching = Counter(job.search for job in trials if not job.after_choice and self.states[job] == WAITING)
        self._held = defaultdict(list)
        for job in self.trials:
            if job.after_choice and self.states[job] == WAITING:
                self._held[job.search].append(job)
        for search in [search for search in self._held if not self._searching[search]]:
            self._release(search)

    def _release(self, search: tuple[str, ...]) -> None:
        """Lets the repetitions run of the setting that was chosen, once all of a search have ended."""
        if held := self._held.pop(search, []):
            (choice,) = self.choices([job for job in self.trials if job.search == search])
            for job in held:
                self._released |= {job} if choice.kept and choice.kept.setting == job.setting else set()
                self.states[job] = WAITING if job in self._released else NOT_CHOSEN

    def _can_start(self, job: Job) -> bool:
        if self.states[job] != WAITING or job in self._running:
            return False
        if isinstance(job, Pretraining):
            return job.needs is None or self.states[job.needs] == FINISHED
        return bool(job.model) and (not isinstance(job, Trial) or not job.after_choice or job in self._released)

    def _next(self) -> Job | None:
        return next((job for job in self.jobs if self._can_start(job)), None)

    def _next_that_fits(self) -> Job | None:
        """The next job if it fits beside those that run; none once a stop was asked for."""
        if stops.asked() or (job := self._next()) is None:
            return None
        there, held = ray.cluster_resources(), [job.resources, *(one.resources for one in self._running)]
        fits_cpus = sum(one.cpus for one in held) <= there.get("CPU", 0) + 1e-9
        return job if fits_cpus and sum(one.gpus for one in held) <= there.get("GPU", 0) + 1e-9 else None

    def _check_resources(self) -> None:
        there = ray.cluster_resources()
        for job in self.jobs:
            for name, asked in (("CPU", job.resources.cpus), ("GPU", job.resources.gpus)):
                if asked > there.get(name, 0):
                    raise ConfigError(
                        f"{job} needs {asked:g} {name}s; the cluster has {there.get(name, 0):g}. Lower its "
                        f"{'parallel' if isinstance(job, Pretraining) else 'resources'}, or start larger nodes."
                    )


def export_step(model: str) -> None:
    """Makes the export of a run's checkpoint, if that is what a cell is to score and it is not there."""
    folder = Path(model)
    if (step := RunFolder.step_of(folder)) is not None and not (folder / MANIFEST).is_file():
        export(folder.parent, step)


def _find_export(recipe: Recipe) -> Path | None:
    """The export of a recipe's finished run; None where `pretrain` has to make or repair something."""
    with suppress(DataError):
        if (folder := pipeline.find_run(recipe)) is not None and folder.is_dir() and whole_manifest(folder):
            pipeline.check_run(folder)
            return RunFolder(folder).export
    return None


def _in_thread(cell: Pretraining) -> Future[Path]:
    """A daemon, so that a second stop signal ends the process without waiting for it."""
    future: Future[Path] = Future()

    def run() -> None:
        try:
            future.set_result(pipeline.pretrain(cell.recipe, title=str(cell)))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="pretraining", daemon=True).start()
    return future
