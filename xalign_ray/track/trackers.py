"""Trackers beside MLflow, TensorBoard, W&B and trackio, and the interface that all of them share."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from xalign_ray.track.headlines import headline_scores
from xalign_ray.work.status_line import say

MAX_SCORES = 1000  # means over languages come first
TENSORBOARD = "tensorboard"  # folder of a run


class Numbers(NamedTuple):
    """The metrics of an event; `time` in seconds since 1970."""

    metrics: Mapping[str, float]
    step: int
    time: float


class Tracker(ABC):
    """A run as a tracker shows it; each method raises whatever the tracker raises.

    Attributes:
        run_id: of the tracker.
        last_steps: of each metric that the tracker holds already, the step of its last point. Those that have none are
            written anew whenever a run is opened, so that no point stands twice.
    """

    def __init__(self, folder: Path) -> None:
        self.run_id: str = folder.resolve().name
        self.last_steps: dict[str, int] = {}

    @abstractmethod
    def log(self, numbers: Sequence[Numbers], resumed_at: Sequence[int]) -> None:
        """Adds numbers in the order of their steps.

        Args:
            resumed_at: the steps at which the run was resumed so far.
        """

    @abstractmethod
    def close(self, scores: list[dict[str, Any]], status: str, time: float) -> None:
        """Adds the scores and files of the run, and ends it.

        Args:
            scores: score records in the order of writing.
            status: MLflow's name of it, FINISHED, FAILED or KILLED.
            time: of the last event, in seconds since 1970.
        """


class TensorboardTracker(Tracker):
    """An event file in RUN/tensorboard."""

    def __init__(self, folder: Path, recipe: Mapping[str, object], experiment: str) -> None:
        from tensorboardX import SummaryWriter

        super().__init__(folder)
        for old in (folder / TENSORBOARD).glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = SummaryWriter(str(folder / TENSORBOARD))
        text = yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True)
        self._writer.add_text("recipe", f"{experiment}\n\n```yaml\n{text}```", 0)

    def log(self, numbers: Sequence[Numbers], resumed_at: Sequence[int]) -> None:  # noqa: ARG002
        for metrics, step, time in numbers:
            for key, value in metrics.items():
                self._writer.add_scalar(key, value, step, walltime=time)
        self._writer.flush()

    def close(self, scores: list[dict[str, Any]], status: str, time: float) -> None:  # noqa: ARG002
        """Scores are scalars below `scores/`."""
        for key, (value, step) in headline_scores(scores, MAX_SCORES).items():
            self._writer.add_scalar(f"scores/{key}", value, step)
        self._writer.close()


class WandbTracker(Tracker):
    """Resumes the run of the folder's name. Steps that the server has are not sent again.

    `WANDB_MODE`, `WANDB_API_KEY`, `WANDB_ENTITY` and `WANDB_BASE_URL` have wandb's meaning. Offline, each time
    that the run is opened a folder with all of its points is written; `wandb sync` of the newest one uploads it.
    """

    def __init__(self, folder: Path, recipe: Mapping[str, object], experiment: str) -> None:
        import wandb

        super().__init__(folder)
        os.environ.setdefault("WANDB_MODE", "online" if _has_key() else "offline")
        if os.environ["WANDB_MODE"] == "offline":
            say(f"W&B: offline, in {folder / 'wandb'}; `wandb sync` of the folder in it uploads the run.")
        settings = wandb.Settings(silent=True, console="off", x_disable_stats=True, reinit="create_new")
        self._run = wandb.init(
            project=experiment, id=self.run_id, name=self.run_id, dir=str(folder), config=dict(recipe),
            resume="allow", settings=settings,
        )  # fmt: skip
        self._sent = self._run.step  # of a resumed run; 0 of a new one

    def log(self, numbers: Sequence[Numbers], resumed_at: Sequence[int]) -> None:  # noqa: ARG002
        """wandb keeps the numbers of one step in one row."""
        for metrics, step, time in numbers:
            if step >= self._sent:
                self._run.log({**metrics, "time": time}, step=step)

    def close(self, scores: list[dict[str, Any]], status: str, time: float) -> None:  # noqa: ARG002
        """Scores stand in the run's summary."""
        means = headline_scores(scores, MAX_SCORES)
        self._run.summary.update({f"scores/{key}": value for key, (value, _) in means.items()})
        self._run.finish()


class TrackioTracker(Tracker):
    """A run in trackio's own folder (`TRACKIO_DIR`).

    `trackio sync` brings it to a Space or a server: there, it could not find out which points it has already.
    """

    def __init__(self, folder: Path, recipe: Mapping[str, object], experiment: str) -> None:
        import trackio
        from trackio.utils import TRACKIO_DIR

        super().__init__(folder)
        for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
            if os.environ.pop(name, ""):
                say(f"trackio: {name} is not followed; the run is in {TRACKIO_DIR}, for `trackio sync`.")
        with redirect_stdout(sys.stderr):  # it reports its start on stdout
            with suppress(ValueError):  # no run of the project was there
                for old in [run for run in trackio.Api().runs(experiment) if run.name == self.run_id]:
                    old.delete()
            self._run = trackio.init(
                experiment, name=self.run_id, config=dict(recipe), embed=False, auto_log_gpu=False, auto_log_cpu=False
            )

    def log(self, numbers: Sequence[Numbers], resumed_at: Sequence[int]) -> None:  # noqa: ARG002
        for metrics, step, _ in numbers:  # trackio takes the time itself
            self._run.log(dict(metrics), step=step)

    def close(self, scores: list[dict[str, Any]], status: str, time: float) -> None:  # noqa: ARG002
        """Scores are numbers below `scores/`."""
        import trackio

        for key, (value, step) in headline_scores(scores, MAX_SCORES).items():
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
