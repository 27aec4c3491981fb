"""Queue of a study's cells: each starts, in the plan's order, when the cells that it needs have ended and it fits."""

from __future__ import annotations

import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from xalign_ray import pretraining
from xalign_ray.config.load import Recipe
from xalign_ray.errors import ConfigError, DataError, StoppedError, XalignError
from xalign_ray.exports import export
from xalign_ray.studies.cells import (
    FAILED,
    FINISHED,
    NOT_CHOSEN,
    RUNNING,
    STOPPED,
    WAITING,
    Cell,
    Choice,
    Job,
    Pretraining,
    Trial,
    choose,
)
from xalign_ray.studies.plan import Plan
from xalign_ray.studies.workers import CellRunner, End, failure_reason, read_end, seconds_of
from xalign_ray.train.ray_gauges import CellGauges
from xalign_ray.work import process
from xalign_ray.work.artifacts import MANIFEST, whole_manifest
from xalign_ray.work.run_folder import RunFolder
from xalign_ray.work.status_line import say

LOOK_S = 0.1
RETRIES = 1  # of a cell that died or failed, before it is reported; the others go on
NOT_SHARED = "Workers must see this folder, and run the same version of xalign_ray as the driver."


class Queue:
    """The cells of a study and their states. A cell that does not fit holds back those behind it.

    A cell needs its encoder's pretraining, which needs the one that it continues; the repetitions of a search need all
    of its trials. The end of a cell reads the files of that cell alone, and touches only the cells that need it.

    Attributes:
        plan: of the study.
        folder: of the study.
        jobs: every cell, in the order of the plan.
        ends: how each cell has ended; WAITING also while it runs.
        failures: why cells failed.
        runs: folder of each pretraining that has finished.
        left: number of cells that have not ended.
    """

    _ended: Callable[[Job], None]

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder, self.jobs, self.left = plan, folder, plan.jobs, len(plan.jobs)
        self.ends: dict[Job, End] = dict.fromkeys(plan.jobs, End(WAITING))
        self.failures: dict[Job, str] = {}
        self.runs: dict[Pretraining, Path] = {}
        self._ready: list[int] = []  # heap of the places of cells that can start
        self._place = {job: number for number, job in enumerate(plan.jobs)}
        self._running: dict[Job, Future[Any]] = {}
        self._tries: Counter[Job] = Counter()
        self._stopped: list[str] = []  # messages of pretrainings that have saved their step
        self._searches: defaultdict[tuple[str, ...], list[Trial]] = defaultdict(list)
        for job in self.jobs:
            if isinstance(job, Trial):
                self._searches[job.search].append(job)
        self._needs = {job: {*self._needed(job)} for job in self.jobs}
        self._needed_by: defaultdict[Job, list[Job]] = defaultdict(list)
        for job, needs in self._needs.items():
            for needed in needs:
                self._needed_by[needed].append(job)
        for job in [job for job in self.jobs if not self._needs[job]]:
            self._open(job)

    @property
    def is_over(self) -> bool:
        """Whether nothing runs and nothing can start."""
        return not self._running and not self._ready

    @property
    def trials(self) -> list[Trial]:
        """The fine-tunings whose encoder is there."""
        return [job for job in self.jobs if isinstance(job, Trial) and job.model]

    @property
    def counts(self) -> dict[str, int]:
        """Number of cells in each state."""
        states = Counter(end.state for end in self.ends.values())
        now = {WAITING: self.left - len(self._running), RUNNING: len(self._running)}
        return now | {state: states[state] for state in (FINISHED, STOPPED, FAILED, NOT_CHOSEN)}

    def run(self, ended: Callable[[Job], None], look: Callable[[], None] = lambda: None) -> None:
        """Runs everything that has not ended. Ray must be connected.

        A stop signal lets pretrainings save their steps, and then interrupts; nothing more is started.

        Args:
            ended: called after the end of each cell; see `ends` and `failures`.
            look: called at least every `LOOK_S` seconds.

        Raises:
            ConfigError: the cluster cannot hold one of the cells even if nothing else ran.
            StoppedError: a stop signal came, and steps were saved.
        """
        self._check_resources()
        self._ended, is_held_up = ended, False
        with (
            process.heeded(),
            closing(CellGauges(self.plan.study.name)) as gauges,
            CellRunner(self.plan, self.folder) as workers,
        ):
            while not self.is_over:
                while self._ready and not process.asked() and self._has_room(job := self.jobs[self._ready[0]]):
                    heapq.heappop(self._ready)
                    self._start(job, workers)
                if self._ready and not self._running and not is_held_up:
                    is_held_up = True
                    say("The cluster has no room now: others hold its CPUs or GPUs. The study waits.")
                gauges.show(self.counts)
                look()
                if self._running:
                    wait(self._running.values(), LOOK_S, FIRST_COMPLETED)
                else:
                    time.sleep(LOOK_S)
                self._notice_ends(workers)
            gauges.show(self.counts)
            look()

    def choices(self, among: Sequence[Trial] | None = None) -> list[Choice]:
        """The choice of each search by the fine-tunings that have finished so far."""
        trials = [trial for trial in (self.trials if among is None else among) if trial.model]
        scores = {trial.name: self.ends[trial].development for trial in trials}
        return choose(trials, {name: score for name, score in scores.items() if score is not None})

    def _needed(self, job: Job) -> Iterator[Job]:
        """The cells that must have ended before this one."""
        before = job.needs if isinstance(job, Pretraining) else job.source.pretraining
        if before and not (isinstance(job, Pretraining) and _find_export(job.recipe)):
            yield before
        if isinstance(job, Trial) and job.after_choice:
            yield from (cell for cell in self._searches[job.search] if not cell.after_choice)

    def _open(self, job: Job) -> None:
        """Queues a cell whose needs have ended, unless it has ended before or its search did not choose it."""
        if isinstance(job, Pretraining):
            if model := _find_export(job.recipe):
                self._add_model(job, model)
                return
        elif (end := read_end(job.folder(self.folder))).state != WAITING:
            self._set(job, end)
            return
        elif isinstance(job, Trial) and job.after_choice:
            (choice,) = self.choices(self._searches[job.search])
            if not choice.kept or choice.kept.setting != job.setting:
                self._set(job, End(NOT_CHOSEN))
                return
        heapq.heappush(self._ready, self._place[job])

    def _set(self, job: Job, end: End) -> None:
        """Records an end, and opens the cells that waited for it alone; cells of a failed pretraining stay."""
        self.ends[job] = end
        self.left -= 1
        for waiting in self._needed_by[job] if isinstance(job, Cell) or end.state == FINISHED else ():
            self._needs[waiting].discard(job)
            if not self._needs[waiting]:
                self._open(waiting)

    def _add_model(self, job: Pretraining, model: Path) -> None:
        self.runs[job] = model.parent
        for encoder in self.plan.encoders:
            if encoder.pretraining is job:
                folder = model if encoder.step is None else RunFolder(model.parent).export_at(encoder.step)
                encoder.model = str(folder.resolve())
        self._set(job, End(FINISHED, seconds=seconds_of(model.parent)))

    def _start(self, job: Job, workers: CellRunner) -> None:
        self._tries[job] += 1
        try:
            if isinstance(job, Cell):
                export_step(job.model)
            self._running[job] = workers.start(job)
        except XalignError as error:
            self._fail(job, str(error))

    def _notice_ends(self, workers: CellRunner) -> None:
        for job in [job for job, running in self._running.items() if running.done()]:
            running = self._running.pop(job)
            error = running.exception()
            if error is None:
                self._finish(job, running)
            elif process.asked():
                self._stopped += [f"{job}: {error}"] if isinstance(error, StoppedError) else []
            elif not isinstance(error, XalignError | RayError):
                raise error
            elif isinstance(job, Cell) and self._tries[job] <= RETRIES:
                self._start(job, workers)
            else:
                self._fail(job, failure_reason(error))
        if process.asked() and not any(isinstance(job, Pretraining) for job in self._running):
            if self._stopped:
                raise StoppedError("\n".join(self._stopped), process.exit_code(process.asked()))
            process.interrupt()

    def _finish(self, job: Job, running: Future[Any]) -> None:
        if isinstance(job, Pretraining):
            self._add_model(job, RunFolder(running.result()).export)
        elif (end := read_end(job.folder(self.folder))).state == WAITING:  # it would be run again without end
            self._fail(job, f"it ended and left no scores in {self.folder}. {NOT_SHARED}")
            return
        else:
            self._set(job, end)
        self._ended(job)

    def _fail(self, job: Job, reason: str) -> None:
        self.failures[job] = reason
        self._set(job, End(FAILED))
        self._ended(job)

    def _has_room(self, job: Job) -> bool:
        """Whether a cell fits beside those that run, and into what nobody else has taken."""
        total, free = ray.cluster_resources(), ray.available_resources()
        return all(
            asked <= free.get(name, 0) + 1e-9
            and asked + sum(running.resources.named[name] for running in self._running) <= total.get(name, 0) + 1e-9
            for name, asked in job.resources.named.items()
        )

    def _check_resources(self) -> None:
        there = ray.cluster_resources()
        for job in self.jobs:
            for name, asked in job.resources.named.items():
                if asked > there.get(name, 0):
                    raise ConfigError(
                        f"{job} needs {asked:g} {name}s; the cluster has {there.get(name, 0):g}. Lower its "
                        f"{'parallel' if isinstance(job, Pretraining) else 'resources'}, or start larger nodes."
                    )


def export_step(model: str) -> None:
    """Exports a run's checkpoint, if that is the encoder of a cell and it is not there."""
    folder = Path(model)
    if (step := RunFolder.step_of(folder)) is not None and not (folder / MANIFEST).is_file():
        export(folder.parent, step)


def _find_export(recipe: Recipe) -> Path | None:
    """The export of a recipe's finished run; None where `pretrain` has to make or repair something."""
    with suppress(DataError):
        if (folder := pretraining.find_run(recipe)) is not None and folder.is_dir() and whole_manifest(folder):
            pretraining.check_run(folder)
            return RunFolder(folder).export
    return None
