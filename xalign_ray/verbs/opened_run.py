"""A run folder opened from Python: its losses and scores as pandas frames, its export as transformers objects."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from xalign_ray.errors import DataError
from xalign_ray.work.run_folder import EVENT_LOG, SCORES, RunFolder, check_export
from xalign_ray.work.storage import absolute_path, quoted

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from xalign_ray.tasks.scores import Score

    Frame = pd.DataFrame
else:
    Frame = "pandas.DataFrame"  # which takes a second to import

STEP_COLUMNS = ("step", "attempt", "time", "batch_hash")


@dataclass(frozen=True)
class Run:
    """A run folder, finished or not; made by `open_run` and `pretrain`, and taken wherever a path is.

    Attributes:
        path: the folder.
    """

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def losses(self) -> pd.DataFrame:
        """The logged steps that led to the newest state; read anew each time.

        Returns:
            A row a logged step, in order. Its columns are `step` (from 1), `attempt` (from 1), `time` (seconds since
            1970), `batch_hash`, and the step's metrics under their names, such as `train/loss`. NaN stands for what was
            not finite or not logged.

        Raises:
            DataError: the log is missing or damaged.
        """
        import pandas as pd

        from xalign_ray.track.events import read_events

        steps = [event for event in read_events(RunFolder(self.path).events) if event["event"] == "step"]
        rows = [{name: event[name] for name in STEP_COLUMNS} | event["metrics"] for event in steps]
        return pd.DataFrame(rows) if rows else pd.DataFrame(columns=list(STEP_COLUMNS))

    @property
    def scores(self) -> pd.DataFrame:
        """The scores of all evaluations in the folder; read anew each time.

        Returns:
            A row a score, a column a field of `xalign_ray.tasks.scores.Score`, among them `metric`, `language`, `value`
            (in [0, 1] for accuracies), `chance` and `n`.

        Raises:
            DataError: a scores.json is damaged.
        """
        from xalign_ray.tasks.scores import read_scores

        return as_frame([score for path in RunFolder(self.path).score_files for score in read_scores(path)])

    def model(self) -> PreTrainedModel:
        """The exported encoder as a transformers model in fp32, with its masked-LM head where the export has one.

        Raises:
            DataError: there is no export, or a file of it is missing or damaged.
        """
        from transformers import AutoModel, AutoModelForMaskedLM

        from xalign_ray.models.open import open_encoder
        from xalign_ray.models.open_folder import open_model

        opened = open_encoder(self._export())
        has_head = any(name.endswith("ForMaskedLM") for name in opened.config.get("architectures") or ())
        return open_model(opened, AutoModelForMaskedLM if has_head else AutoModel)[0]

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The exported tokenizer as transformers opens it.

        Raises:
            DataError: there is no export, or a file of it is missing or damaged.
        """
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self._export(), trust_remote_code=False)

    def _export(self) -> Path:
        folder = RunFolder(self.path).export
        if not folder.is_dir():
            raise DataError(f"{self.path} holds no export yet; `xalign export {quoted(self.path)}` writes one.")
        check_export(folder)
        return folder


def open_run(path: str | os.PathLike[str]) -> Run:
    """Opens a run folder, finished or not; writes nothing.

    Args:
        path: the folder, such as "runs/tiny-mlm-1a2b3c4d".

    Raises:
        ConfigError: there is no such folder.
        DataError: it holds neither an event log nor scores, or a file of another run.
    """
    from xalign_ray.config.explain import check_folder
    from xalign_ray.config.saved import read_saved
    from xalign_ray.work.mirror import opened

    folder = RunFolder(opened(absolute_path(os.fspath(path))))
    check_folder(folder.path)
    if not folder.events.is_file() and not folder.score_files:
        raise DataError(f"{folder.path} is not a run: it holds neither {EVENT_LOG} nor a {SCORES}.")
    read_saved(folder.path)
    return Run(folder.path)


def as_frame(scores: Sequence[Score]) -> Frame:
    """A row a score, a column a field of `Score`; the columns are there without a row too."""
    import pandas as pd

    from xalign_ray.tasks.scores import Score

    return pd.DataFrame([asdict(score) for score in scores], columns=[field.name for field in fields(Score)])
