"""Progress of a study for its user: a line for each cell that ends, study.json, the table of a plan, MLflow."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_ray.errors import XalignError
from xalign_ray.results.difference import ONE_RUN, smallest_decided
from xalign_ray.studies.cells import Cell
from xalign_ray.track.destinations import runs_page
from xalign_ray.track.follower import replay_one, runs_inside
from xalign_ray.work.artifacts import write_json
from xalign_ray.work.mirror import url_of
from xalign_ray.work.run_folder import STUDY
from xalign_ray.work.status_line import duration, say

if TYPE_CHECKING:
    from xalign_ray.studies.declared import StudyConfig
    from xalign_ray.studies.queue import Queue


RECORD_S = 2.0  # least pause between two writes of study.json, which holds every cell
MOST_POINTS = 100  # by which two encoders can differ
POWER_LANGUAGES = (4, 8, 12, 20)  # numbers of languages whose power a plan shows
UNKNOWN = dict.fromkeys(
    ("name", "folder", "task", "train_language", "training", "setting", "made_by", "development", "seconds")
)


class Progress:
    """Reports the progress of a study.

    study.json holds every cell, so it is not written at each end, but at most every `RECORD_S` seconds.
    """

    def __init__(self, queue: Queue, publisher: StudyPublisher | None = None) -> None:
        self._queue, self._publisher = queue, publisher
        self._written: tuple[int, float] = (queue.left, 0.0)  # how many cells were left, and when

    def report_end(self, cell: Cell) -> None:
        """Prints how a cell ended, and sends it to MLflow."""
        queue, end = self._queue, self._queue.ends[cell]
        if self._publisher and not cell.recipe:  # a run of a recipe is followed by MLflow already
            self._publisher.publish(cell.folder(queue.folder))
        how = end.state if cell.recipe else str(end)
        how += f": {queue.failures[cell]}" if cell in queue.failures else ""
        say(f"[{len(queue.cells) - queue.left}/{len(queue.cells)}] {cell}: {how}")

    def write_if_due(self) -> None:
        """Writes study.json if cells have ended since, and it was not written just now."""
        left, at = self._written
        if left != self._queue.left and time.monotonic() > at + RECORD_S:
            self.write()

    def write(self) -> None:
        """Writes study.json: the state of each cell; a report is made from it."""
        queue, study = self._queue, self._queue.plan.study
        content = {name: getattr(study, name) for name in ("name", "scale", "notes", "baseline", "labels")}
        content["study"] = study.model_dump(mode="json")
        content["seeds"] = {entry.shown: entry.seeds or study.seeds for entry in study.encoders if not entry.model}
        chosen = queue.kept
        content["cells"] = [describe(queue, cell, chosen) for cell in queue.cells]
        write_json(queue.folder / STUDY, content)
        self._written = (queue.left, time.monotonic())


def describe(queue: Queue, cell: Cell, kept: Mapping[str, bool]) -> dict[str, Any]:
    """A cell's entry in study.json; a value that is not known yet is None.

    A report takes the scores of finished cells that are `chosen`: of fine-tunings this is None while the search of
    their setting goes on.

    Args:
        queue: of the study.
        cell: to describe.
        kept: as the queue has it.
    """
    end, folder = queue.ends[cell], queue.runs.get(cell)
    if cell.model or cell.command:
        folder = cell.folder(queue.folder)
    entry = UNKNOWN | {"kind": cell.kind, "encoder": cell.encoder, "seed": cell.seed, "label": cell.label}
    if cell.settings:
        entry |= {"train_language": cell.train_language, "training": cell.training.name, "setting": cell.setting}
    elif not cell.task:
        entry["setting"] = {"recipe": cell.recipe.name} if cell.recipe else {"command": cell.command}
    entry["task"] = cell.task or None
    entry |= {"resources": cell.resources.model_dump(mode="json")}
    entry |= {"chosen": kept.get(cell.name) if cell.settings else True}
    maker = next((made for made in (cell, cell.needs) if made and made.command), None)
    entry |= {"made_by": maker and maker.name, "state": end.state, "reason": queue.failures.get(cell)}
    if folder:
        inside = folder.is_relative_to(queue.folder)
        shown = folder.relative_to(queue.folder).as_posix() if inside else url_of(folder) or str(folder)
        entry |= {"name": folder.name, "folder": shown, "development": end.development, "seconds": end.seconds}
    return entry


def describe_plan(queue: Queue) -> str:
    """The cells as a table of text: kind, resources, length and state."""
    rows = [("cell", "kind", "needs", "work", "state")]
    for cell in queue.cells:
        end = queue.ends[cell]
        took = "" if end.seconds is None else f" in {duration(end.seconds)}"
        rows.append((str(cell), cell.kind, str(cell.resources), cell.work, end.state + took))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    counts = Counter(end.state for end in queue.ends.values())
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    return "\n".join([*lines, f"{len(queue.cells)} cells: {states}"])


def describe_power(study: StudyConfig) -> str:
    """Which differences a study with its seeds and arms can decide, by the number of its languages."""
    trained = [len(entry.seeds or study.seeds) for entry in study.encoders if not entry.model]
    arms, seeds = len(study.labels) - 1, max(trained, default=0)
    if not arms or not seeds:
        return "Power: nothing here is trained and compared."
    if seeds < 2:
        return f"Power: {ONE_RUN} of an arm decides nothing; `seeds` has {seeds}."
    spread = study.spread.languages, study.spread.seeds
    differences = {number: smallest_decided(number, seeds, spread, arms) for number in POWER_LANGUAGES}
    sizes = ", ".join(
        f"{number} languages {f'{least:.1f}' if least < MOST_POINTS else 'none'}"
        for number, least in differences.items()
    )
    return (
        f"Power: with {seeds} seeds and {arms} arms beside the baseline, 80 % of such studies decide a true difference "
        f"of these points: {sizes}; if it varies by {spread[0]:g} between languages and {spread[1]:g} between seeds "
        "(`spread`), and the languages are unrelated, and all trained or all not."
    )


class StudyPublisher:
    """Brings a study and its cells to MLflow in a thread, which no cell waits for.

    Attributes:
        uri: of MLflow.
        page: of the study's runs in MLflow, once finished.
    """

    def __init__(self, study: Path, tracking_uri: str, experiment: str) -> None:
        self.uri, self.page = tracking_uri, ""
        self._study, self._experiment, self._done = study, experiment, set[Path]()
        self._thread = ThreadPoolExecutor(1, "study to MLflow")
        self.publish(study)

    def publish(self, folder: Path) -> None:
        """Queues the folder of a cell, or of the study itself."""
        self._thread.submit(self._replay, folder)  # tried again at the end

    def finish(self) -> None:
        """Waits until MLflow has the study and all of its cells; else prints a sentence on the missing part."""
        self._thread.shutdown()
        missed = (folder for folder in runs_inside(self._study) if folder not in self._done)
        try:
            for folder in (self._study, *missed):
                self._replay(folder)
        except XalignError as error:
            say(str(error))
        else:
            self.page = runs_page(self.uri, self._experiment)

    def _replay(self, folder: Path) -> None:
        replay_one(folder, self.uri, self._experiment)
        self._done.add(folder)
