"""Queue of a study's cells: each starts, in the plan's order, when the cells that it needs have ended and it fits."""

from __future__ import annotations

import math
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
    PRETRAINING,
    RUNNING,
    STOPPED,
    WAITING,
    Cell,
    Choice,
    choose,
)
from xalign_ray.studies.command import find_made
from xalign_ray.studies.declared import resource_in_words
from xalign_ray.studies.plan import Plan
from xalign_ray.studies.workers import CellRunner, End, failure_reason, read_end, seconds_of
from xalign_ray.train.capacity import lasting_nodes
from xalign_ray.train.ray_gauges import CellGauges
from xalign_ray.work import process
from xalign_ray.work.artifacts import MANIFEST, hash_value, whole_manifest
from xalign_ray.work.run_folder import RunFolder
from xalign_ray.work.status_line import say

LOOK_S = 0.1
HELD_UP_S = 10.0  # a cell that has ended keeps its CPUs for some moments
RETRIES = 1  # of a cell that died or failed, before it is reported; the others go on
NOT_SHARED = "Workers must see this folder, and run the same version of xalign_ray as the driver."


class Queue:
    """The cells of a study and their states. A cell that does not fit holds back those behind it.

    A cell needs its encoder's pretraining, which needs the one that it continues; the repetitions of a search need all
    of its trials. The files of a cell are read when its needs have ended, and when it ends.

    Attributes:
        plan: of the study.
        folder: of the study.
        cells: every cell, in the order of the plan.
        ends: how each cell has ended; WAITING also while it runs.
        failures: why cells failed.
        runs: folder of each pretraining that has finished.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder, self.cells = plan, folder, plan.cells
        self.ends: dict[Cell, End] = dict.fromkeys(plan.cells, End(WAITING))
        self.failures: dict[Cell, str] = {}
        self.runs: dict[Cell, Path] = {}
        self._running: dict[Cell, Future[Any]] = {}
        self._tries: Counter[Cell] = Counter()
        self._ended: Callable[[Cell], None] = lambda _: None
        self._stopped: list[str] = []  # messages of pretrainings that have saved their step
        self._searches: defaultdict[tuple[str, ...], list[Cell]] = defaultdict(list)
        for cell in plan.finetunings:
            if not cell.after_choice:
                self._searches[tuple(cell.search.values())].append(cell)
        self._ready: list[Cell] = []  # in the order of the plan
        self._later: dict[Cell, list[Cell]] = {}  # with the cells that must have ended before
        for cell in plan.cells:
            needed = [cell.needs] if cell.needs and not (cell.recipe and _find_export(cell.recipe)) else []
            self._later[cell] = needed + (self._searches[tuple(cell.search.values())] if cell.after_choice else [])
        self._open()

    @property
    def left(self) -> int:
        """Number of cells that have not ended."""
        return sum(end.state == WAITING for end in self.ends.values())

    @property
    def is_over(self) -> bool:
        """Whether nothing runs and nothing can start."""
        return not self._running and not self._ready

    @property
    def trials(self) -> list[Cell]:
        """The fine-tunings whose encoder is there."""
        return [cell for cell in self.plan.finetunings if cell.model]

    @property
    def counts(self) -> dict[str, int]:
        """Number of cells in each state."""
        states = Counter(end.state for end in self.ends.values())
        now = {WAITING: states[WAITING] - len(self._running), RUNNING: len(self._running)}
        return now | {state: states[state] for state in (FINISHED, STOPPED, FAILED, NOT_CHOSEN)}

    def run(self, ended: Callable[[Cell], None], look: Callable[[], None] = lambda: None) -> None:
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
        self._ended, started_at = ended, time.monotonic()
        with (
            process.heeded(),
            closing(CellGauges(self.plan.study.name)) as gauges,
            CellRunner(self.plan, self.folder) as workers,
        ):
            while not self.is_over:
                while self._ready and not process.asked() and self._has_room(self._ready[0]):
                    self._start(self._ready.pop(0), workers)
                if self._running or not self._ready:
                    started_at = time.monotonic()
                elif time.monotonic() > started_at + HELD_UP_S:
                    started_at = math.inf
                    say("The cluster has no room now: others hold its CPUs, GPUs or memory. The study waits.")
                gauges.show(self.counts)
                look()
                if self._running:
                    wait(self._running.values(), LOOK_S, FIRST_COMPLETED)
                else:
                    time.sleep(LOOK_S)
                self._notice_ends(workers)
            gauges.show(self.counts)
            look()

    def choices(self, among: Sequence[Cell] | None = None) -> list[Choice]:
        """The choice of each search by the fine-tunings that have finished so far."""
        trials = [trial for trial in (self.trials if among is None else among) if trial.model]
        scores = {trial.name: self.ends[trial].development for trial in trials}
        return choose(trials, {name: score for name, score in scores.items() if score is not None})

    @property
    def kept(self) -> dict[str, bool]:
        """Whether each ended fine-tuning has the chosen setting, by name; without those whose search goes on."""
        over = {
            search
            for search, trials in self._searches.items()
            if self.is_over
            or all(self.ends[trial].state != WAITING for trial in trials)
            or len({hash_value(trial.setting) for trial in trials}) == 1
        }
        ended = [trial for trial in self.trials if self.ends[trial].state != WAITING]
        trials = [trial for trial in ended if tuple(trial.search.values()) in over]
        kept_names = {name for choice in self.choices(trials) if choice.kept for name in choice.kept["development"]}
        return {trial.name: trial.name in kept_names for trial in trials}

    def _open(self) -> None:
        """Queues the cells whose needs have ended, but for those that have ended before or were not chosen.

        Cells of a failed pretraining stay.
        """
        done = {FINISHED}, {FINISHED, STOPPED, FAILED, NOT_CHOSEN}  # a pretraining must have made its encoder
        while opened := [
            cell
            for cell, needs in self._later.items()
            if all(self.ends[needed].state in done[needed.kind != PRETRAINING] for needed in needs)
        ]:
            for cell in opened:
                del self._later[cell]
                self.ends[cell] = self._end_before(cell)
            self._ready += [cell for cell in opened if self.ends[cell].state == WAITING]
        ready = {*self._ready}
        self._ready = [cell for cell in self.cells if cell in ready]

    def _end_before(self, cell: Cell) -> End:
        """How a cell has ended in an earlier process, or without being run."""
        end = self._read_end(cell)
        if end.state == STOPPED and self.plan.study.search.asha is None:
            end = End(WAITING)  # a search that stopped some was before
        if end.state == WAITING and cell.after_choice:
            (choice,) = self.choices(self._searches[tuple(cell.search.values())])
            if not choice.kept or choice.kept["setting"] != cell.setting:
                return End(NOT_CHOSEN)
        return end

    def _read_end(self, cell: Cell) -> End:
        """How a cell has ended, by its files."""
        if cell.kind != PRETRAINING:
            return read_end(cell.folder(self.folder))
        model = _find_export(cell.recipe) if cell.recipe else find_made(cell, self.folder)
        return self._add_model(cell, model) if model else End(WAITING)

    def _add_model(self, cell: Cell, model: Path) -> End:
        """Gives the encoder that a cell has made to those that wait for it."""
        self.runs[cell] = model.parent if cell.recipe else cell.folder(self.folder)
        written = whole_manifest(model if cell.recipe else self.runs[cell]) or {}
        for encoder in self.plan.encoders:
            if encoder.pretraining is cell:
                folder = model if encoder.step is None else RunFolder(model.parent).export_at(encoder.step)
                encoder.model, encoder.made = str(folder.resolve()), hash_value(written.get("files"))
        return End(FINISHED, seconds=seconds_of(self.runs[cell]))

    def _start(self, cell: Cell, workers: CellRunner) -> None:
        self._tries[cell] += 1
        try:
            export_step(cell.model)
            self._running[cell] = workers.start(cell)
        except XalignError as error:
            self._note(cell, End(FAILED), str(error))

    def _notice_ends(self, workers: CellRunner) -> None:
        for cell in [cell for cell, running in self._running.items() if running.done()]:
            running = self._running.pop(cell)
            error = running.exception()
            if error is None and cell.recipe:
                self._note(cell, self._add_model(cell, running.result()))
            elif error is None and (end := self._read_end(cell)).state != WAITING:
                self._note(cell, end)
            elif error is None:  # it would be run again without end
                self._note(cell, End(FAILED), f"it ended and left no result in {self.folder}. {NOT_SHARED}")
            elif process.asked():
                self._stopped += [f"{cell}: {error}"] if isinstance(error, StoppedError) else []
            elif not isinstance(error, XalignError | RayError):
                raise error
            elif not cell.recipe and self._tries[cell] <= RETRIES:
                self._start(cell, workers)
            else:
                self._note(cell, End(FAILED), failure_reason(error))
        if process.asked() and not any(cell.recipe for cell in self._running):
            if self._stopped:
                raise StoppedError("\n".join(self._stopped), process.exit_code(process.asked()))
            process.interrupt()

    def _note(self, cell: Cell, end: End, reason: str = "") -> None:
        self.ends[cell] = end
        if reason:
            self.failures[cell] = reason
        self._open()
        self._ended(cell)

    def _has_room(self, cell: Cell) -> bool:
        """Whether a cell fits beside those that run, and into what nobody else has taken."""
        total, free = ray.cluster_resources(), ray.available_resources()
        for name, asked in cell.resources.named.items():
            taken = sum(running.resources.named.get(name, 0) for running in self._running)
            if asked > min(free.get(name, 0), total.get(name, 0) - taken) + 1e-9:
                return False
        return True

    def _check_resources(self) -> None:
        cluster, nodes = ray.cluster_resources(), [node["Resources"] for node in lasting_nodes()]
        for cell in self.cells:
            for name, asked in cell.resources.named.items():
                of_one = [cluster] if cell.recipe else nodes  # a task is on one node
                most = max((there.get(name, 0) for there in of_one), default=0)
                if asked > most:
                    where, key = ("the cluster", "parallel") if cell.recipe else ("its largest node", "resources")
                    raise ConfigError(
                        f"{cell} needs {resource_in_words(name, asked)}; {where} has {resource_in_words(name, most)}. "
                        f"Lower its {key}, or start larger nodes."
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
