"""A run folder in a tracker that takes scalars: its numbers in order, each step once, and its scores at the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from xalign_ray.config.load import read_saved
from xalign_ray.track.events import EventReader, Thinning
from xalign_ray.track.headlines import comparison_metrics, headline_scores, read_headlines
from xalign_ray.work.run_folder import RunFolder

MAX_SCORES = 1000  # means over languages come first
_EVENTS_A_PIECE = 4000


class Logger(Protocol):
    """A tracker that is open for one run."""

    def log(self, metrics: Mapping[str, float], step: int, time: float, /) -> None:
        """Adds numbers of a step; `time` in seconds since 1970."""

    def finish(self, scores: Mapping[str, tuple[float, int]], /) -> None:
        """Adds what was scored, each with the step of the encoder, and closes the run."""


class LoggedRun:
    """As `MlflowRun`: a metric has one point a step, the first one, and at most MAX_POINTS evenly spread ones."""

    def __init__(self, folder: Path, tracker: str, experiment: str) -> None:
        """Opens the tracker; raises whatever it raises.

        Args:
            folder: of a run that has started.
            tracker: a name of `follower.LOGGERS`.
            experiment: what the tracker calls a project.
        """
        self.run_id = folder.resolve().name
        self._folder, self._reader = folder, EventReader(RunFolder(folder).events)
        start = EventReader(RunFolder(folder).events).read(limit=1)[0]
        recipe = read_saved(folder)
        self._thinning = Thinning(start.get("steps") or recipe.get("train", {}).get("max_steps", 0))
        self._attempt, self._last_step = 0, 0
        self._marks: dict[str, int] = {}
        self._logger = _open(tracker, folder, recipe, experiment)

    def advance(self) -> bool:
        """Logs the next piece of the event log; True while there may be more."""
        events = self._reader.read(limit=_EVENTS_A_PIECE)
        for event in events:
            if event["attempt"] < self._attempt:
                continue  # written by a worker that had been given up
            self._attempt, step = event["attempt"], event["step"]
            place = self._thinning.place(step)
            found = {
                key: value
                for key, value in event.get("metrics", {}).items()
                if value is not None and (key not in self._marks or place > self._marks[key])
            }
            if found:
                self._logger.log(found, step, event["time"])
            self._marks |= dict.fromkeys(found, place)
            self._last_step = max(self._last_step, step)
        return len(events) == _EVENTS_A_PIECE

    def finish(self) -> None:
        """Logs the scores of the folder and closes the tracker's run."""
        run = RunFolder(self._folder)
        records = [record for path in run.score_files for record in read_headlines(path)]
        scores = headline_scores(records, MAX_SCORES) if records else {}
        if run.comparison.is_file():
            compared = comparison_metrics(run.comparison)
            scores = scores | {key: (value, self._last_step) for key, value in compared.items()}
        self._logger.finish(scores)


def _open(tracker: str, folder: Path, recipe: Mapping[str, object], experiment: str) -> Logger:
    if tracker == "wandb":
        from xalign_ray.track.wandb_logger import WandbLogger

        return WandbLogger(folder, recipe, experiment)
    from xalign_ray.track.tensorboard_logger import TensorboardLogger

    return TensorboardLogger(folder, recipe, experiment)
