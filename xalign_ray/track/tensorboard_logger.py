"""TensorBoard: a run's numbers as an event file in RUN/tensorboard, which `tensorboard --logdir RUNS` finds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml
from tensorboardX import SummaryWriter

FOLDER = "tensorboard"


class TensorboardLogger:
    """Writes the event file anew each time it is opened, so that a resumed run has every point once."""

    def __init__(self, folder: Path, recipe: Mapping[str, object], experiment: str) -> None:
        for old in (folder / FOLDER).glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = SummaryWriter(str(folder / FOLDER))
        text = yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True)
        self._writer.add_text("recipe", f"{experiment}\n\n```yaml\n{text}```", 0)

    def log(self, metrics: Mapping[str, float], step: int, time: float) -> None:
        """See `Logger.log`."""
        for key, value in metrics.items():
            self._writer.add_scalar(key, value, step, walltime=time)
        self._writer.flush()

    def finish(self, scores: Mapping[str, tuple[float, int]]) -> None:
        """See `Logger.finish`; scores are scalars below `scores/`."""
        for key, (value, step) in scores.items():
            self._writer.add_scalar(f"scores/{key}", value, step)
        self._writer.close()
