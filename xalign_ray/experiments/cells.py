"""The cells of a study: a pretraining, a fine-tuning or an evaluation, each named by its content, in a folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from xalign_ray.artifacts import hash_value, whole_manifest
from xalign_ray.config.load import Recipe
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.training_set import Training
from xalign_ray.tasks.scores import SCORES, are_whole

CELLS = "cells"
TOKENIZED = "tokenized"  # data sets that all fine-tunings of a study share, removed when it is over
STOP_MARK = "stopped.json"  # of a fine-tuning that was stopped for others: it has no manifest, and is not run again
FINISHED, STOPPED, WAITING, FAILED, NOT_CHOSEN = "finished", "stopped", "waiting", "failed", "not chosen"
EVALUATION_KIND = "evaluation"  # what the manifest of an evaluation's cell says of itself


@dataclass(frozen=True, slots=True)
class Resources:
    """What a cell holds on the cluster while it runs."""

    cpus: float
    gpus: float = 0.0


@dataclass(frozen=True, eq=False)
class Pretraining:
    """A recipe with a seed, run by Ray Train; its folder is that of an ordinary run. A plan has each once.

    Attributes:
        encoder: label of the encoder.
        recipe: resolved, with its seed and output.
        resources: of its workers and their feed.
        needs: the pretraining that it continues, if it is a cell of the study too.
    """

    kind: ClassVar[str] = "pretraining"
    encoder: str
    recipe: Recipe
    resources: Resources
    needs: Pretraining | None = None

    @property
    def seed(self) -> int:
        """Of pretraining."""
        return self.recipe.config.seed

    def __str__(self) -> str:
        return f"{self.encoder} (seed {self.seed})"


@dataclass(frozen=True, slots=True)
class FineTune:
    """One fine-tuning: the arguments of `tune_task`, as plain values.

    Attributes:
        task: name in `TUNED_TASKS`.
        model: folder or hub id.
        data: folders of the task's files.
        settings: learning rate, epochs, batch size, seed.
        training: what is made of the training files.
        languages: those to test; all that are found if None.
        train_language: see `tune_task`.
    """

    task: str
    model: str
    data: tuple[str, ...]
    settings: FineTuning = field(default_factory=FineTuning)
    training: Training = field(default_factory=Training)
    languages: tuple[str, ...] | None = None
    train_language: str = "en"

    @property
    def name(self) -> str:
        """Of the cell's folder: equal fine-tunings have equal names."""
        return f"{self.task}-{hash_value(asdict(self))[:12]}"

    @property
    def search(self) -> str:
        """Equal among the fine-tunings that compete, those that differ in settings only."""
        return replace(self, settings=FineTuning()).name


@dataclass(frozen=True, slots=True)
class Evaluate:
    """One evaluation without training, as plain values.

    Attributes:
        task: name in `TASKS`.
        model: folder or hub id.
        data: its files, None where a run has its own.
        languages: those to score; all that are found if None.
    """

    task: str
    model: str
    data: str | None
    languages: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """Of the cell's folder."""
        return f"{self.task}-{hash_value(asdict(self))[:12]}"


@dataclass(frozen=True)
class Cell:
    """A fine-tuning or an evaluation, and what it stands for in the study.

    Attributes:
        kind: "finetuning" or "evaluation".
        encoder: label of the encoder.
        seed: of its pretraining; None for a model that was given.
        label: its column in the report.
        job: what is computed.
        resources: held while it runs.
        after_choice: it is run only if its setting was chosen, under other seeds than those of the search.
    """

    kind: str
    encoder: str
    seed: int | None
    label: str
    job: FineTune | Evaluate
    resources: Resources
    after_choice: bool = False

    @property
    def search(self) -> tuple[str, str, str, str]:
        """Encoder, task, language and kind of training: among fine-tunings of the same, one setting is chosen."""
        assert isinstance(self.job, FineTune)
        return self.encoder, self.job.task, self.job.train_language, self.job.training.kind

    @property
    def setting(self) -> dict[str, Any]:
        """What is chosen: everything of the settings but the seed."""
        assert isinstance(self.job, FineTune)
        return {name: value for name, value in asdict(self.job.settings).items() if name != "seed"}

    def __str__(self) -> str:
        who = self.label if self.seed is None else f"{self.label} (seed {self.seed})"
        if isinstance(self.job, Evaluate):
            return f"{who}: {self.job.task}"
        settings, language = self.job.settings, self.job.train_language
        return (
            f"{who}: {self.job.task}{'' if language == 'en' else f' ({language})'}, lr {settings.learning_rate:g}, "
            f"{settings.num_train_epochs} epochs, batch {settings.train_batch_size}, seed {settings.seed}"
        )


def cell_folder(study: Path, cell: Cell) -> Path:
    """Where a fine-tuning or an evaluation is in the folder of a study."""
    return study / CELLS / cell.job.name


def state_of(folder: Path) -> str:
    """What the folder of a fine-tuning or an evaluation says: finished, stopped early, or waiting to be run."""
    if whole_manifest(folder, "kind") is not None and are_whole(folder / SCORES):
        return FINISHED
    return STOPPED if (folder / STOP_MARK).is_file() else WAITING
