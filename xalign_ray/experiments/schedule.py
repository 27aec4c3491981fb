"""Runs the cells of a study side by side: each starts when its encoder is there and its resources are free."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from xalign_ray import stops
from xalign_ray.artifacts import whole_manifest
from xalign_ray.errors import ConfigError, StoppedError, XalignError
from xalign_ray.experiments.cell_log import Notes, close_log
from xalign_ray.experiments.cells import (
    FAILED,
    FINISHED,
    WAITING,
    Cell,
    Evaluate,
    FineTune,
    Pretraining,
    cell_folder,
    state_of,
)
from xalign_ray.experiments.choice import Choice, choose
from xalign_ray.experiments.declared import AshaSearch
from xalign_ray.experiments.evaluations import start_evaluation
from xalign_ray.experiments.plan import Encoder, Plan
from xalign_ray.experiments.trials import Halving, HalvingByGroup, TrialQueue, last_line, run_trials
from xalign_ray.experiments.verbs import Job, Verbs

LOOK_S = 0.1


@dataclass
class Schedule:
    """A study at work. Jobs start in the order of the encoders, and one that does not fit holds back those behind it.

    Attributes:
        plan: the study's.
        folder: of the study.
        verbs: see there.
        models: folder or hub id of each encoder that is there, by its place in the plan.
        cells: the fine-tunings and evaluations of those encoders.
        failures: of jobs that failed, why.
    """

    plan: Plan
    folder: Path
    verbs: Verbs
    models: dict[int, str] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    failures: dict[Job, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._done: set[Pretraining] = set()
        self._queued: set[Pretraining] = set()
        self._saved: list[str] = []  # what pretrainings said that were told to stop
        self._ready: list[tuple[int, Job]] = []
        self._held: list[tuple[int, Cell]] = []  # repetitions of what is not chosen yet
        self._running: dict[Job, Future[Any] | None] = {}  # Tune tells of the ends of fine-tunings
        found = {cell: self.verbs.find(cell.recipe) for cell in self.plan.pretrainings}
        self._done |= {cell for cell, model in found.items() if model is not None}
        for cell, model in found.items():
            if model is not None:
                self._finish(cell, model)
        for place, encoder in enumerate(self.plan.encoders):
            if encoder.model:
                self._open(place, encoder, encoder.model)
        self._queue_pretrainings()

    @property
    def is_over(self) -> bool:
        """Whether nothing runs and nothing is left that could."""
        return not self._ready and not self._running

    @property
    def size(self) -> int:
        """How many cells there are."""
        return len(self.plan.pretrainings) + len(list(self._planned()))

    @property
    def left(self) -> int:
        """How many cells have not ended."""
        unknown = [cell for cell in self._planned() if not cell.job.model]
        waiting = [cell for cell in self.cells if self.state(cell) == WAITING]
        return len(self.plan.pretrainings) - len(self._done) + len(unknown) + len(waiting)

    def run(self) -> None:
        """Runs everything that has not ended. Ray must be connected.

        A stop signal lets pretrainings save their steps, and then interrupts; nothing more is started.

        Raises:
            ConfigError: the cluster cannot hold one of the jobs even if nothing else ran.
        StoppedError: it was told to stop, and steps were saved.
        """
        self._check_resources()
        search, halving = self.plan.study.search, None
        if isinstance(search, AshaSearch):
            epochs = [cell.job.settings.num_train_epochs for cell in self._planned() if isinstance(cell.job, FineTune)]
            halving = Halving(search.grace_epochs, search.reduction_factor, max(epochs, default=1))
        scheduler, queue = HalvingByGroup(halving), TrialQueue(self._take_trial, self._end)
        with stops.heeded():
            while not self.is_over:
                self._advance()
                if self._fits_next(FineTune):
                    run_trials(queue, self.folder, self.plan.study.keep_models, scheduler)
                elif not self.is_over:
                    time.sleep(LOOK_S)

    def state(self, cell: Cell) -> str:
        """Of a fine-tuning or an evaluation of an encoder that is there."""
        return FAILED if cell in self.failures else state_of(cell_folder(self.folder, cell))

    def choices(self) -> list[Choice]:
        """What is chosen among the fine-tunings that have finished so far."""
        tuned = [cell for cell in self.cells if isinstance(cell.job, FineTune)]
        manifests = {cell.job.name: whole_manifest(cell_folder(self.folder, cell), "development") for cell in tuned}
        return choose(tuned, {name: one["development"] for name, one in manifests.items() if one is not None})

    def _advance(self) -> None:
        """Takes notice of what has ended, and starts what can start now, but fine-tunings, which Tune takes."""
        for job, running in list(self._running.items()):
            if running is not None:
                self._look_at(job, running)
        if stops.asked():
            if not any(isinstance(job, Pretraining) for job in self._running):
                if self._saved:
                    raise StoppedError("\n".join(self._saved), stops.exit_code(stops.asked()))
                stops.interrupt()
            return
        while self._fits_next(Pretraining) or self._fits_next(Evaluate):
            job = self._ready.pop(0)[1]
            if isinstance(job, Pretraining):
                self._running[job] = _in_thread(lambda job=job: self.verbs.pretrain(job.recipe, str(job)))
            else:
                self._running[job] = start_evaluation(job, self.verbs.notes_of(job), self.folder)

    def _look_at(self, job: Job, running: Future[Any]) -> None:
        if not running.done():
            return
        del self._running[job]
        error = running.exception()
        if error is None:
            if isinstance(job, Pretraining):
                self._finish(job, running.result())
            self._end(job, FINISHED, "")
        elif stops.asked():
            self._saved += [f"{job}: {error}"] if isinstance(error, StoppedError) else []
        elif isinstance(error, XalignError):
            self._end(job, FAILED, str(error))
        elif isinstance(error, RayError):
            self._end(job, FAILED, last_line(str(error)))
        else:
            raise error

    def _take_trial(self) -> tuple[Cell, Notes] | None:
        self._advance()
        if not self._fits_next(FineTune):
            return None
        cell = self._ready.pop(0)[1]
        assert isinstance(cell, Cell)
        self._running[cell] = None
        return cell, self.verbs.notes_of(cell)

    def _end(self, job: Job, state: str, reason: str) -> None:
        self._running.pop(job, None)
        if state == FAILED:
            self.failures[job] = reason
        self._release()
        self.verbs.ended(job, state, reason)

    def _finish(self, cell: Pretraining, model: Path) -> None:
        """A pretraining is done: what continues it, and what its encoder is for, can start."""
        self._done.add(cell)
        for place, encoder in enumerate(self.plan.encoders):
            if encoder.pretraining is cell:
                self._open(place, encoder, str(model.resolve()))
        self._queue_pretrainings()

    def _queue_pretrainings(self) -> None:
        for cell in self.plan.pretrainings:
            if cell not in self._queued | self._done and (cell.needs is None or cell.needs in self._done):
                self._queued.add(cell)
                self._ready.append((self._place_of(cell), cell))
        self._ready.sort(key=lambda ready: ready[0])

    def _open(self, place: int, encoder: Encoder, model: str) -> None:
        self.models[place] = model
        for cell in self.plan.cells_of(encoder, model):
            self.cells.append(cell)
            state = state_of(cell_folder(self.folder, cell))
            if state == WAITING:
                (self._held if cell.after_choice else self._ready).append((place, cell))
            else:
                close_log(cell_folder(self.folder, cell), state)
        self._release()

    def _release(self) -> None:
        """Lets the repetitions of a setting run that was chosen when its search was over."""
        chosen = {one.search: one.kept for one in self.choices()} if self._held else {}
        for place, cell in list(self._held):
            open_ones = [job for job in (*(job for _, job in self._ready), *self._running) if isinstance(job, Cell)]
            searched = [
                one
                for one in self.cells
                if isinstance(one.job, FineTune) and not one.after_choice and one.search == cell.search
            ]
            if not searched or any(one in open_ones for one in searched):
                continue
            self._held.remove((place, cell))
            if (kept := chosen.get(cell.search)) and kept.setting == cell.setting:
                self._ready.append((place, cell))
        self._ready.sort(key=lambda ready: ready[0])

    def _fits_next(self, kind: type) -> bool:
        """Whether the next job is of this kind and fits beside those that run."""
        if not self._ready or stops.asked():
            return False
        job = self._ready[0][1]
        if not isinstance(job, kind) and not (isinstance(job, Cell) and isinstance(job.job, kind)):
            return False
        there, held = ray.cluster_resources(), [one.resources for one in self._running]
        cpus = job.resources.cpus + sum(one.cpus for one in held)
        gpus = job.resources.gpus + sum(one.gpus for one in held)
        return cpus <= there.get("CPU", 0) + 1e-9 and gpus <= there.get("GPU", 0) + 1e-9

    def _check_resources(self) -> None:
        there = ray.cluster_resources()
        for job in (*self.plan.pretrainings, *self._planned()):
            for name, asked in (("CPU", job.resources.cpus), ("GPU", job.resources.gpus)):
                if asked > there.get(name, 0):
                    raise ConfigError(
                        f"{job} needs {asked:g} {name}s; the cluster has {there.get(name, 0):g}. Lower its "
                        f"{'parallel' if isinstance(job, Pretraining) else 'resources'}, or start larger nodes."
                    )

    def _planned(self) -> Iterator[Cell]:
        """All fine-tunings and evaluations; those of encoders that are not there yet have no name of their own."""
        for place, encoder in enumerate(self.plan.encoders):
            yield from self.plan.cells_of(encoder, self.models.get(place, ""))

    def _place_of(self, cell: Pretraining) -> int:
        """Of the first encoder that needs it."""
        return min(place for place, one in enumerate(self.plan.encoders) if cell in _chain(one.pretraining))


def _chain(cell: Pretraining | None) -> Iterator[Pretraining]:
    while cell is not None:
        yield cell
        cell = cell.needs


def _in_thread(work: Callable[[], Any]) -> Future[Any]:
    """A daemon, so that a second stop signal ends the process without waiting for it."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="pretraining", daemon=True).start()
    return future
