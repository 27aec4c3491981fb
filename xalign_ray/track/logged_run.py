"""A run folder in TensorBoard, W&B or trackio: its numbers in order, each step once, its scores at the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from pathlib import Path

import yaml

from xalign_ray.config.saved import read_saved
from xalign_ray.track.events import EventReader, Thinning
from xalign_ray.track.headlines import headline_scores, read_headlines
from xalign_ray.work.run_folder import RunFolder
from xalign_ray.work.status_line import say

MAX_SCORES = 1000  # means over languages come first
_EVENTS_A_PIECE = 4000
TENSORBOARD = "tensorboard"  # folder of a run


class LoggedRun:
    """As `MlflowRun`: a metric has one point a step, the first one, and at most MAX_POINTS evenly spread ones."""

    def __init__(self, folder: Path, tracker: str, experiment: str) -> None:
        """Opens the tracker; raises whatever it raises.

        Args:
            folder: of a run that has started.
            tracker: a name of `follower.LOGGERS`.
            experiment: the tracker's project.
        """
        self.run_id = folder.resolve().name
        self._folder, self._reader = folder, EventReader(RunFolder(folder).events)
        start = EventReader(RunFolder(folder).events).read(limit=1)[0]
        recipe = read_saved(folder)
        self._thinning = Thinning(start.get("steps") or recipe.get("train", {}).get("max_steps", 0))
        self._attempt = 0
        kinds = {"tensorboard": TensorboardLogger, "wandb": WandbLogger, "trackio": TrackioLogger}
        self._logger = kinds[tracker](folder, recipe, experiment)

    def advance(self) -> bool:
        """Logs the next piece of the event log; True while there may be more."""
        events = self._reader.read(limit=_EVENTS_A_PIECE)
        for event in events:
            if event["attempt"] < self._attempt:
                continue  # written by a worker that had been given up
            self._attempt, step = event["attempt"], event["step"]
            if found := self._thinning.take(event.get("metrics", {}), step):
                self._logger.log(found, step, event["time"])
        return len(events) == _EVENTS_A_PIECE

    def finish(self) -> None:
        """Logs the scores of the folder and closes the tracker's run."""
        run = RunFolder(self._folder)
        records = [record for path in run.score_files for record in read_headlines(path)]
        scores = headline_scores(records, MAX_SCORES) if records else {}
        self._logger.finish(scores)


class TensorboardLogger:
    """An event file in RUN/tensorboard, written anew each time it is opened: a resumed run has every point once."""

    def __init__(self, folder: Path, recipe: Mapping[str, object], experiment: str) -> None:
        from tensorboardX import SummaryWriter

        for old in (folder / TENSORBOARD).glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = SummaryWriter(str(folder / TENSORBOARD))
        text = yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True)
        self._writer.add_text("recipe", f"{experiment}\n\n```yaml\n{text}```", 0)

    def log(self, metrics: Mapping[str, float], step: int, time: float) -> None:
        """Adds numbers of a step; `time` in seconds since 1970."""
        for key, value in metrics.items():
            self._writer.add_scalar(key, value, step, walltime=time)
        self._writer.flush()

    def finish(self, scores: Mapping[str, tuple[float, int]]) -> None:
        """Adds the scores, and closes the run; scores are scalars below `scores/`."""
        for key, (value, step) in scores.items():
            self._writer.add_scalar(f"scores/{key}", value, step)
        self._writer.close()


class WandbLogger:
    """Resumes the run of the folder's name. Steps that the server has are not sent again.

    `WANDB_MODE`, `WANDB_API_KEY`, `WANDB_ENTITY` and `WANDB_BASE_URL` have wandb's meaning. Offline, each time
    that the run is opened a folder with all of its points is written; `wandb sync` of the newest one uploads it.
    """

    def __init__(self, folder: Path, recipe: Mapping[str, object], experiment: str) -> None:
        import wandb

        os.environ.setdefault("WANDB_MODE", "online" if _has_key() else "offline")
        if os.environ["WANDB_MODE"] == "offline":
            say(f"W&B: offline, in {folder / 'wandb'}; `wandb sync` of the folder in it uploads the run.")
        name = folder.resolve().name
        settings = wandb.Settings(silent=True, console="off", x_disable_stats=True, reinit="create_new")
        self._run = wandb.init(
            project=experiment, id=name, name=name, dir=str(folder), config=dict(recipe), resume="allow",
            settings=settings,
        )  # fmt: skip
        self._sent = self._run.step  # of a resumed run; 0 of a new one

    def log(self, metrics: Mapping[str, float], step: int, time: float) -> None:
        """Adds numbers of a step; wandb keeps the numbers of one step in one row."""
        if step >= self._sent:
            self._run.log({**metrics, "time": time}, step=step)

    def finish(self, scores: Mapping[str, tuple[float, int]]) -> None:
        """Adds the scores, and closes the run; scores stand in the run's summary."""
        self._run.summary.update({f"scores/{key}": value for key, (value, _) in scores.items()})
        self._run.finish()


class TrackioLogger:
    """A run in trackio's own folder (`TRACKIO_DIR`), written anew each time it is opened, as that of TensorBoard.

    `trackio sync` brings it to a Space or a server: there, it could not find out which points it has already.
    """

    def __init__(self, folder: Path, recipe: Mapping[str, object], experiment: str) -> None:
        import trackio
        from trackio.utils import TRACKIO_DIR

        for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
            if os.environ.pop(name, ""):
                say(f"trackio: {name} is not followed; the run is in {TRACKIO_DIR}, for `trackio sync`.")
        name = folder.resolve().name
        with redirect_stdout(sys.stderr):  # it reports its start on stdout
            with suppress(ValueError):  # no run of the project was there
                for old in [run for run in trackio.Api().runs(experiment) if run.name == name]:
                    old.delete()
            self._run = trackio.init(
                experiment, name=name, config=dict(recipe), embed=False, auto_log_gpu=False, auto_log_cpu=False
            )

    def log(self, metrics: Mapping[str, float], step: int, time: float) -> None:  # noqa: ARG002 - trackio has its own
        """Adds numbers of a step; `time` in seconds since 1970."""
        self._run.log(dict(metrics), step=step)

    def finish(self, scores: Mapping[str, tuple[float, int]]) -> None:
        """Adds the scores, and closes the run; scores are numbers below `scores/`."""
        import trackio

        for key, (value, step) in scores.items():
            self._run.log({f"scores/{key}": value}, step=step)
        with redirect_stdout(sys.stderr):
            trackio.finish()


def _has_key() -> bool:
    """Whether wandb would log in without asking."""
    import wandb
    from requests.utils import get_netrc_auth

    if os.environ.get("WANDB_API_KEY") or wandb.setup().settings.api_key:
        return True
    return get_netrc_auth(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")) is not None
