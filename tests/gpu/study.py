"""A study on one machine in minutes: `python tests/gpu/study.py STUDY --out FOLDER --encoder E --set KEY=VALUE ...`.

Cells run side by side in processes of their own, as many as the cores allow: under Ray each would hold a whole
GPU. The study then finds them finished, and scores them in Ray's processes, which go on from cell to cell. Shards that
are not there are made meanwhile. What has been scored when time is up can be reported.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from pathlib import Path

from xalign_ray import pretraining
from xalign_ray.config.load import Recipe
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.errors import XalignError
from xalign_ray.results.report import report
from xalign_ray.studies.cells import Cell
from xalign_ray.studies.declared import StudyConfig, load_study
from xalign_ray.studies.rates import choose_rates, trial_study, with_rates
from xalign_ray.studies.study import STUDIES, make_plan, run_planned
from xalign_ray.train.cluster import connect
from xalign_ray.work.artifacts import finished_run

BEGAN = time.monotonic()
PATIENCE_S = 40  # for shards, once all else is trained


def say(text: str) -> None:
    """A line with the seconds since the start."""
    sys.stdout.write(f"{time.monotonic() - BEGAN:6.1f} s  {text}\n")
    sys.stdout.flush()


def train(title: str, recipe: Recipe) -> str:
    """One pretraining, in this process."""
    began = time.monotonic()
    pretraining.pretrain(recipe, local=True)
    return f"{title}: {time.monotonic() - began:.1f} s"


def prepare_all(cells: Sequence[Cell], ready: Callable[[Cell], None]) -> None:
    """Makes the shards that are not there, one recipe after the other."""
    for cell in cells:
        began = time.monotonic()
        try:
            pretraining.prepare(cell.recipe)
        except XalignError as error:
            say(f"{cell}: {error}")
            return
        say(f"{cell}: prepared in {time.monotonic() - began:.1f} s")
        ready(cell)


def train_all(study: StudyConfig, output: Path, processes: int) -> StudyConfig:
    """Trains what a study pretrains, and gives the study without the arms whose shards were not made in time."""
    cells = make_plan(study, output).pretrainings
    runs = {cell: pretraining.find_run(cell.recipe) for cell in cells}
    lacking = [cell for cell in cells if runs[cell] is None]
    left = [cell for cell in cells if (run := runs[cell]) is not None and finished_run(run) is None]
    say(f"{study.name}: {len(left)} pretrainings, {processes} at a time; {len(lacking)} more lack their shards")
    running: dict[Future[str], Cell] = {}
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:

        def start(cell: Cell) -> None:
            future = pool.submit(train, str(cell), cell.recipe)
            running[future] = cell
            future.add_done_callback(say_end)

        def say_end(future: Future[str]) -> None:
            error = future.exception()
            say(f"{running[future]}: {type(error).__name__}: {error}" if error else future.result())

        for cell in left:
            start(cell)
        preparing = threading.Thread(target=prepare_all, args=(lacking, start), daemon=True)
        preparing.start()
        wait(list(running))
        preparing.join(PATIENCE_S)
        wait(list(running))
    late = {cell.encoder for cell in lacking} - {cell.encoder for cell in running.values()}
    if late:
        say(f"left out, without shards: {', '.join(sorted(late))}")
    return study.model_copy(update={"encoders": tuple(one for one in study.encoders if one.shown not in late)})


def run(study: StudyConfig, output: Path, processes: int, last: str = "") -> StudyConfig:
    """Pretrains and scores a study, one task after all others; gives it with the arms that were there."""
    study = train_all(study, output, processes)
    others = tuple(one for one in study.finetunings if one.task != last)
    for tasks in (others, study.finetunings)[others == study.finetunings :]:
        try:
            run_planned(study.model_copy(update={"finetunings": tasks}), output)
        except XalignError as error:
            say(str(error))
        say(f"{study.name}: scored, fine-tuned for {', '.join(one.task for one in tasks) or 'nothing'}")
    return study


def main() -> None:
    """Tries the rates, chooses them, runs the study with them, and packs its report."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("study")
    given.add_argument("--out", type=Path, required=True)
    given.add_argument("--encoder", default="")
    given.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given.add_argument("--processes", type=int, default=12, help="pretrainings side by side")
    given.add_argument("--last", default="", metavar="TASK", help="fine-tuned for when all else has been scored")
    given.add_argument("--report-only", action="store_true", help="of what has been scored; the bundle beside it")
    asked = given.parse_args()
    output = asked.out.absolute()
    study = load_study(asked.study, asked.set, asked.encoder)
    folder = output / STUDIES / study.name
    if not asked.report_only:
        connect(ParallelConfig(), os.cpu_count())
        if study.rates:
            trials = trial_study(study)
            tried = run(trials, output, asked.processes)
            arms = tuple(
                one
                for one in study.encoders
                if not one.recipe or any(t.shown.startswith(f"{one.shown} ") for t in tried.encoders)
            )
            study = study.model_copy(update={"encoders": arms})
            rates = choose_rates(study, output / STUDIES / trials.name)
            say(f"rates: {rates}")
            study = with_rates(study, rates)
        run(study, output, asked.processes, asked.last)
    report([str(folder)], bundle=folder / "bundle.zip")
    say("reported")


if __name__ == "__main__":
    main()
