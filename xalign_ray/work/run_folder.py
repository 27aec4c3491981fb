"""The names of the files in a run folder, each written here once; and whether its export is whole."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from xalign_ray.errors import DataError
from xalign_ray.work.artifacts import MANIFEST, TRIAL_KIND, check_files, read_manifest

CONFIG = "config.yaml"
EVENT_LOG = "events.jsonl"  # a study, a trial and an evaluation have one too
SCORES = "scores.json"
PREDICTIONS = (
    "predictions"  # beside the scores of a fine-tuned model, and in a study of Tatoeba and words: a file a language
)
EXPORT = "export"
CARD = "README.md"  # in the export: the model card
RUNS = Path("runs")  # of studies, and of scores of models that are no runs
EVALUATION = "evaluation"
CHECKPOINTS = "checkpoints"
REPORT = "report"
DATA = "data"  # in what MLflow holds of a run: the manifest of its prepared data
COMPARISON = "comparison.json"  # of a continued run with the encoder that it began from
STUDY, CHOICES = "study.json", "choices.json"  # in the folder of a study
RATES = "rates.json"  # there: the learning rates that were tried, and those chosen


@dataclass(frozen=True)
class RunFolder:
    """Where things lie in the folder of a run, whether or not they are there.

    Attributes:
        path: the folder.
    """

    path: Path

    @classmethod
    def of_export(cls, export: Path) -> RunFolder | None:
        """The run folder that an export lies in; None of a folder that is not called as an export is."""
        return cls(export.parent) if export.name == EXPORT else None

    @property
    def config(self) -> Path:
        """The recipe, resolved."""
        return self.path / CONFIG

    @property
    def events(self) -> Path:
        """A line for each thing that happened."""
        return self.path / EVENT_LOG

    @property
    def data(self) -> Path:
        """The manifest of its prepared data, in a folder that was downloaded from MLflow."""
        return self.path / DATA

    @property
    def manifest(self) -> Path:
        """Written last: with it the run is finished."""
        return self.path / MANIFEST

    @property
    def export(self) -> Path:
        """The trained encoder as a Hugging Face folder."""
        return self.path / EXPORT

    def export_at(self, step: int) -> Path:
        """The encoder as it was after a step; 0 is the untrained one."""
        return self.path / f"{EXPORT}_step_{step:06d}"

    @classmethod
    def step_of(cls, export: Path) -> int | None:
        """The step of an export that is called as `export_at` calls it."""
        match = re.fullmatch(rf"{EXPORT}_step_(\d{{6,}})", export.name)
        return int(match[1]) if match else None

    @property
    def checkpoints(self) -> Path:
        """One folder a checkpoint."""
        return self.path / CHECKPOINTS

    def checkpoint(self, step: int) -> Path:
        """The checkpoint that was written after a step."""
        return self.checkpoints / f"step_{step:06d}"

    def evaluation(self, name: str) -> Path:
        """The scores and predictions of one task, or of one study."""
        return self.path / EVALUATION / name

    @property
    def score_files(self) -> list[Path]:
        """The files of scores that are there, sorted: one an evaluation, or one of the folder itself."""
        return sorted([*self.path.glob(f"{EVALUATION}/*/{SCORES}"), *self.path.glob(SCORES)])

    @property
    def report(self) -> Path:
        """The report on this run alone."""
        return self.path / REPORT

    @property
    def comparison(self) -> Path:
        """The comparison with the encoder that the run continued."""
        return self.path / COMPARISON

    @property
    def base(self) -> Path:
        """The scores of the encoder that the run continued, on the run's own test."""
        return self.path / "base"

    @property
    def profile(self) -> Path:
        """Where the time of some steps went."""
        return self.path / "profile"

    @property
    def ray(self) -> Path:
        """What Ray writes while a run trains; removed afterwards."""
        return self.path / "ray"


def check_export(folder: Path, own: bool = False) -> None:
    """Raises DataError if a folder is not as our export wrote it; one that is not our `own` may be without hashes."""
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder / 'config.json'} is missing.")
    manifest = read_manifest(folder) or {}
    if own and "files" not in manifest:
        raise DataError(f"{folder / MANIFEST} is missing or damaged.")
    again = f"Remove {folder} and give the `xalign tune` that made it again."
    export = f"`xalign export {shlex.quote(str(folder.parent))}` writes the export of a run again."
    check_files(folder, manifest.get("files", {}), again if manifest.get("kind") == TRIAL_KIND else export)
