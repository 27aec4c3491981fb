"""Weights & Biases: a run folder as a run of a project, by its own name; offline in RUN/wandb where no key is known."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import wandb

from xalign_ray.work.status_line import say


class WandbLogger:
    """Resumes the run of the folder's name. Steps that the server has are not sent again.

    `WANDB_MODE`, `WANDB_API_KEY`, `WANDB_ENTITY` and `WANDB_BASE_URL` mean what they mean to wandb. Offline, each time
    that the run is opened a folder with all of its points is written; `wandb sync` of the newest one uploads it.
    """

    def __init__(self, folder: Path, recipe: Mapping[str, object], experiment: str) -> None:
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
        """See `Logger.log`; wandb keeps the numbers of one step in one row."""
        if step >= self._sent:
            self._run.log({**metrics, "time": time}, step=step)

    def finish(self, scores: Mapping[str, tuple[float, int]]) -> None:
        """See `Logger.finish`; scores stand in the run's summary."""
        self._run.summary.update({f"scores/{key}": value for key, (value, _) in scores.items()})
        self._run.finish()


def _has_key() -> bool:
    """Whether wandb would log in without asking."""
    return bool(os.environ.get("WANDB_API_KEY") or wandb.setup().settings.api_key or _in_netrc())


def _in_netrc() -> bool:
    from requests.utils import get_netrc_auth

    return get_netrc_auth(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")) is not None
