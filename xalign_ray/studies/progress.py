"""Progress of a study for its user: a line for each cell that ends, study.json, the table of a plan, MLflow."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from statistics import fmean
from typing import TYPE_CHECKING, Any

from xalign_ray.errors import XalignError
from xalign_ray.studies.cells import FINISHED, WAITING, Cell, Job, Pretraining
from xalign_ray.track.destinations import runs_page
from xalign_ray.track.follower import replay_one, runs_inside
from xalign_ray.work.artifacts import write_atomic
from xalign_ray.work.mirror import url_of
from xalign_ray.work.run_folder import STUDY
from xalign_ray.work.status_line import duration, say

if TYPE_CHECKING:
    from xalign_ray.studies.queue import Queue


RECORD_S = 2.0  # least pause between two writes of study.json, which holds every cell
UNKNOWN = dict.fromkeys(("name", "folder", "task", "train_language", "training", "setting", "development", "seconds"))


class Progress:
    """Reports the progress of a study.

    study.json holds every cell, so it is not written at each end, but at most every `RECORD_S` seconds.
    """

    def __init__(self, queue: Queue, publisher: StudyPublisher | None = None) -> None:
        self._queue, self._publisher = queue, publisher
        self._written: tuple[int, float] = (queue.left, 0.0)  # how many cells were left, and when

    def report_end(self, job: Job) -> None:
        """Prints how a cell ended, and sends it to MLflow."""
        queue, end = self._queue, self._queue.ends[job]
        how = end.state
        if isinstance(job, Cell):
            how = describe_end(end.development, end.seconds) if end.state == FINISHED else how
            if self._publisher:
                self._publisher.publish(job.folder(queue.folder))
        how += f": {queue.failures[job]}" if job in queue.failures else ""
        say(f"[{len(queue.jobs) - queue.left}/{len(queue.jobs)}] {job}: {how}")

    def write_if_due(self) -> None:
        """Writes study.json if cells have ended since, and it was not written just now."""
        left, at = self._written
        if left != self._queue.left and time.monotonic() > at + RECORD_S:
            self.write()

    def write(self) -> None:
        """Writes study.json: the state of each cell; a report is made from it."""
        queue, study = self._queue, self._queue.plan.study
        head = {name: getattr(study, name) for name in ("name", "scale", "notes", "baseline", "labels")}
        head["study"] = study.model_dump(mode="json")
        head["seeds"] = {encoder.shown: encoder.seeds or study.seeds for encoder in study.encoders if encoder.recipe}
        shown = json.dumps(head, sort_keys=True, ensure_ascii=False, indent=1).removesuffix("\n}")
        cells = (json.dumps(describe(queue, job), sort_keys=True, ensure_ascii=False) for job in queue.jobs)
        lines = ",\n".join(cells)  # a cell a line
        write_atomic(queue.folder / STUDY, f'{shown},\n "cells": [\n{lines}\n ]\n}}\n')
        self._written = (queue.left, time.monotonic())


def describe(queue: Queue, job: Job) -> dict[str, Any]:
    """A cell's entry in study.json; a value that is not known yet is None."""
    end, folder = queue.ends[job], queue.runs.get(job) if isinstance(job, Pretraining) else None
    if isinstance(job, Cell) and job.model:
        folder = job.folder(queue.folder)
    cell = UNKNOWN | {"kind": job.kind, "encoder": job.encoder, "seed": job.seed} | job.described
    cell |= {"resources": job.resources.model_dump(mode="json")}
    cell |= {"state": end.state, "reason": queue.failures.get(job)}
    if folder:
        inside = folder.is_relative_to(queue.folder)
        shown = folder.relative_to(queue.folder).as_posix() if inside else url_of(folder) or str(folder)
        cell |= {"name": folder.name, "folder": shown, "development": end.development, "seconds": end.seconds}
    return cell


def describe_end(development: float | None, seconds: float | None) -> str:
    """How a finished cell ended.

    Args:
        development: score of a fine-tuning.
        seconds: wall time; None where its process was killed before it wrote the end of its log.
    """
    what = FINISHED if development is None else f"development {development:.3f}"
    return what if seconds is None else f"{what}, {seconds:.0f} s"


def describe_plan(queue: Queue) -> str:
    """The cells as a table of text: kind, resources, length and state."""
    rows = [("cell", "kind", "needs", "work", "state")]
    for job in queue.jobs:
        end = queue.ends[job]
        took = "" if end.seconds is None else f" in {duration(end.seconds)}"
        rows.append((str(job), job.kind, str(job.resources), job.work, end.state + took))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    counts = Counter(queue.ends[job].state for job in queue.jobs)
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    return "\n".join([*lines, f"{len(queue.jobs)} cells: {states}{_time_left(queue)}"])


def _time_left(queue: Queue) -> str:
    """How long the waiting cells take, by the mean of the finished cells of their kind; empty while there is none."""
    took: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    waiting: list[tuple[str, str]] = []
    for job, end in queue.ends.items():
        kind = job.kind, job.recipe.name if isinstance(job, Pretraining) else job.task
        if end.state == WAITING:
            waiting.append(kind)
        elif end.seconds is not None:
            took[kind].append(end.seconds)
    means = [fmean(took[kind]) for kind in waiting if kind in took]
    unknown = len(waiting) - len(means)
    if not means:
        return ""
    time_left = duration(sum(means))
    shown = f"; {len(means)} waiting cells take about {time_left}, one after the other, by the mean of their kind"
    return f"{shown}; of {unknown} more none of the kind has ended" if unknown else shown


class StudyPublisher:
    """Brings a study and its cells to MLflow in a thread, which no cell waits for.

    Attributes:
        uri: of MLflow.
        page: of the study's runs in MLflow, once finished.
    """

    def __init__(self, study: Path, tracking_uri: str, experiment: str) -> None:
        self.uri, self.page = tracking_uri, ""
        self._study, self._experiment = study, experiment
        self._folders, self._done = SimpleQueue[Path | None](), set[Path]()
        self._thread = threading.Thread(target=self._run, name="study to MLflow", daemon=True)
        self._thread.start()

    def publish(self, folder: Path) -> None:
        """Queues the folder of a cell, or of the study itself."""
        self._folders.put(folder)

    def finish(self) -> str:
        """Waits until MLflow has the study and all of its cells; else returns a sentence on the missing part."""
        self._folders.put(None)
        self._thread.join()
        missed = (folder for folder in runs_inside(self._study) if folder not in self._done)
        for folder in (self._study, *missed):
            try:
                replay_one(folder, self.uri, self._experiment)
            except XalignError as error:
                return str(error)
        self.page = runs_page(self.uri, self._experiment)
        return ""

    def _run(self) -> None:
        while (folder := self._folders.get()) is not None:
            with suppress(XalignError):  # tried again at the end
                replay_one(folder, self.uri, self._experiment)
                self._done.add(folder)


@contextmanager
def publishing(study: Path, tracking_uri: str, experiment: str) -> Iterator[StudyPublisher]:
    """Publishes a study; at the end MLflow has all of it, or a sentence names the missing part."""
    publisher = StudyPublisher(study, tracking_uri, experiment)
    publisher.publish(study)
    try:
        yield publisher
    finally:
        if lacking := publisher.finish():
            say(lacking)
