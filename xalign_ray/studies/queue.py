"""Queue of a study's cells: each starts when its encoder is there and the cluster has room, in the plan's order."""

from __future__ import annotations

import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
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
    Encoder,
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

LOOK_S = 0.1
RETRIES = 1  # of a cell that died or failed, before it is reported; the others go on
NOT_SHARED = "Workers must see this folder, and run the same version of xalign_ray as the driver."


class Queue:
    """The cells of a study and their states. A cell that does not fit holds back those behind it.

    The end of a cell costs the same however many cells there are: it reads the files of that cell alone, and touches
    only the cells that were waiting for it.

    Attributes:
        plan: of the study.
        folder: of the study.
        jobs: every cell, in the order of the plan.
        ends: how each cell has ended; WAITING also while it runs.
        failures: why cells failed.
        runs: folder of each pretraining that has finished.
    """

    _runner: CellRunner
    _ended: Callable[[Job], None]

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder, self.jobs = plan, folder, plan.jobs
        self.ends: dict[Job, End] = dict.fromkeys(plan.jobs, End(WAITING))
        self.failures: dict[Job, str] = {}
        self.runs: dict[Pretraining, Path] = {}
        self._counts = Counter({WAITING: len(plan.jobs)})
        self._place = {job: place for place, job in enumerate(plan.jobs)}
        self._ready: list[int] = []  # heap of the places of cells that can start
        self._running: dict[Job, Future[Any]] = {}
        self._tries: Counter[Job] = Counter()
        self._stopped: list[str] = []  # messages of pretrainings that have saved their step
        self._cells: defaultdict[Encoder, list[Cell]] = defaultdict(list)
        self._searches: defaultdict[tuple[str, ...], list[Trial]] = defaultdict(list)
        self._searching: Counter[tuple[str, ...]] = Counter()  # cells of each search that have not ended
        self._released: set[Trial] = set()  # of a chosen setting, with seeds that the search did not use
        for job in self.jobs:
            if isinstance(job, Cell):
                self._cells[job.source].append(job)
            if isinstance(job, Trial):
                self._searches[job.search].append(job)
                self._searching[job.search] += not job.after_choice
        there = [encoder for encoder in plan.encoders if encoder.pretraining is None]
        for job in plan.pretrainings:
            if model := _find_export(job.recipe):
                there += self._add_model(job, model)
        self._queue_pretrainings()
        self._queue_cells(there)

    @property
    def is_over(self) -> bool:
        """Whether nothing runs and nothing can start."""
        return not self._running and not self._ready

    @property
    def left(self) -> int:
        """Number of cells that have not ended."""
        return self._counts[WAITING]

    @property
    def trials(self) -> list[Trial]:
        """The fine-tunings whose encoder is there."""
        return [job for job in self.jobs if isinstance(job, Trial) and job.model]

    @property
    def counts(self) -> dict[str, int]:
        """Number of cells in each state."""
        now = {WAITING: self.left - len(self._running), RUNNING: len(self._running)}
        return now | {state: self._counts[state] for state in (FINISHED, STOPPED, FAILED, NOT_CHOSEN)}

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
        self._ended = ended
        with (
            process.heeded(),
            closing(CellGauges(self.plan.study.name)) as gauges,
            CellRunner(self.plan, self.folder) as self._runner,
        ):
            while not self.is_over:
                self._start_what_fits()
                gauges.show(self.counts)
                look()
                if self._running:
                    wait(self._running.values(), LOOK_S, FIRST_COMPLETED)
                else:
                    time.sleep(LOOK_S)
                self._notice_ends()
            gauges.show(self.counts)
            look()

    def choices(self, among: Sequence[Trial] | None = None) -> list[Choice]:
        """The choice of each search by the fine-tunings that have finished so far."""
        trials = [trial for trial in (self.trials if among is None else among) if trial.model]
        scores = {trial.name: self.ends[trial].development for trial in trials}
        return choose(trials, {name: score for name, score in scores.items() if score is not None})

    def _start_what_fits(self) -> None:
        while self._ready and not process.asked() and self._has_room(job := self.jobs[self._ready[0]]):
            heapq.heappop(self._ready)
            try:
                if isinstance(job, Cell):
                    export_step(job.model)
            except XalignError as error:
                self._end(job, End(FAILED), str(error))
            else:
                self._start(job)
        self._runner.dismiss_free()

    def _start(self, job: Job) -> None:
        self._tries[job] += 1
        self._running[job] = self._runner.start(job)

    def _notice_ends(self) -> None:
        for job in [job for job, running in self._running.items() if running.done()]:
            running = self._running.pop(job)
            error = running.exception()
            self._runner.end(job, error)
            if error is None:
                self._finish(job, running)
            elif process.asked():
                self._stopped += [f"{job}: {error}"] if isinstance(error, StoppedError) else []
            elif not isinstance(error, XalignError | RayError):
                raise error
            elif isinstance(job, Cell) and self._tries[job] <= RETRIES:
                self._start(job)
            else:
                self._end(job, End(FAILED), failure_reason(error))
        if process.asked() and not any(isinstance(job, Pretraining) for job in self._running):
            if self._stopped:
                raise StoppedError("\n".join(self._stopped), process.exit_code(process.asked()))
            process.interrupt()

    def _finish(self, job: Job, running: Future[Any]) -> None:
        if isinstance(job, Cell):
            end = read_end(job.folder(self.folder))
            self._end(job, end, f"it ended and left no scores in {self.folder}. {NOT_SHARED}")
        else:
            made = self._add_model(job, RunFolder(running.result()).export)
            self._queue_pretrainings(job)
            self._queue_cells(made)
            self._ended(job)

    def _end(self, job: Job, end: End, reason: str = "") -> None:
        """Records an end. A cell that is not whole has failed: it would be run again without end."""
        if end.state in (WAITING, FAILED):
            end, self.failures[job] = End(FAILED), reason
        self._set(job, end)
        if isinstance(job, Trial):
            self._leave_search(job)
        self._ended(job)

    def _set(self, job: Job, end: End) -> None:
        self._counts[self.ends[job].state] -= 1
        self._counts[end.state] += 1
        self.ends[job] = end

    def _add_model(self, job: Pretraining, model: Path) -> list[Encoder]:
        """Marks a pretraining as finished; gives the encoders that it has made."""
        self.runs[job] = model.parent
        self._set(job, End(FINISHED, seconds=seconds_of(model.parent)))
        made = [encoder for encoder in self.plan.encoders if encoder.pretraining is job]
        for encoder in made:
            folder = model if encoder.step is None else RunFolder(model.parent).export_at(encoder.step)
            encoder.model = str(folder.resolve())
        return made

    def _queue_pretrainings(self, after: Pretraining | None = None) -> None:
        """Queues the pretrainings that continue this one; without it, all that can start when the study opens."""
        for job in self.plan.pretrainings:
            can_start = job.needs is None or self.ends[job.needs].state == FINISHED
            if self.ends[job].state == WAITING and can_start and (after is None or job.needs is after):
                heapq.heappush(self._ready, self._place[job])

    def _queue_cells(self, encoders: Sequence[Encoder]) -> None:
        """Queues the cells of encoders that have come to be there, but those that have ended before."""
        cells = [cell for encoder in encoders for cell in self._cells[encoder]]
        for cell in cells:
            if (end := read_end(cell.folder(self.folder))).state != WAITING:
                self._set(cell, end)
            elif not (isinstance(cell, Trial) and cell.after_choice):
                heapq.heappush(self._ready, self._place[cell])
        for cell in cells:
            if isinstance(cell, Trial) and self.ends[cell].state != WAITING:
                self._searching[cell.search] -= not cell.after_choice
        for search in dict.fromkeys(cell.search for cell in cells if isinstance(cell, Trial) and cell.after_choice):
            self._release(search)

    def _leave_search(self, trial: Trial) -> None:
        if not trial.after_choice:
            self._searching[trial.search] -= 1
            self._release(trial.search)

    def _release(self, search: tuple[str, ...]) -> None:
        """Queues the repetitions of the chosen setting, once all cells of a search have ended."""
        if self._searching[search]:
            return
        trials = self._searches[search]
        waiting = [one for one in trials if one.after_choice and one.model and self.ends[one].state == WAITING]
        if not (held := [one for one in waiting if one not in self._released]):
            return
        (choice,) = self.choices(trials)
        for trial in held:
            if choice.kept and choice.kept.setting == trial.setting:
                self._released.add(trial)
                heapq.heappush(self._ready, self._place[trial])
            else:
                self._set(trial, End(NOT_CHOSEN))

    def _has_room(self, job: Job) -> bool:
        there, held = ray.cluster_resources(), [job.resources, *(one.resources for one in self._running)]
        fits_cpus = sum(one.cpus for one in held) <= there.get("CPU", 0) + 1e-9
        return fits_cpus and sum(one.gpus for one in held) <= there.get("GPU", 0) + 1e-9

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
