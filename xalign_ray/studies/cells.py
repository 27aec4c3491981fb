"""The cells of a study: a pretraining, a fine-tuning or an evaluation, each named by its content, in a folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from xalign_ray.config.load import Recipe
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.training_set import Training
from xalign_ray.studies.declared import Resources
from xalign_ray.tasks.scores import SCORES, are_whole
from xalign_ray.work.artifacts import hash_value, whole_manifest

CELLS = "cells"
TOKENIZED = "tokenized"  # data sets that all fine-tunings of a study share, removed when it is over
STOP_MARK = "stopped.json"  # of a fine-tuning that was stopped for others: it has no manifest, and is not run again
FINISHED, STOPPED, WAITING, FAILED, NOT_CHOSEN = "finished", "stopped", "waiting", "failed", "not chosen"


@dataclass(frozen=True, eq=False)
class Pretraining:
    """A recipe with a seed, run by Ray Train; its folder is that of an ordinary run. A plan has each once.

    Attributes:
        encoder: label of the encoder.
        recipe: resolved, with its seed and output.
        resources: of its workers and their feed.
        needs: the pretraining that it continues, if it is a cell of the study too.
        apart: languages in which its encoder differs from others of the same label.
    """

    kind: ClassVar[str] = "pretraining"
    encoder: str
    recipe: Recipe
    resources: Resources
    needs: Pretraining | None = None
    apart: tuple[str, ...] = ()

    @property
    def seed(self) -> int:
        """Of pretraining."""
        return self.recipe.config.seed

    @property
    def work(self) -> str:
        """How much there is to do."""
        return self.recipe.config.train.in_words

    @property
    def described(self) -> dict[str, Any]:
        """What it is, for study.json."""
        return {"label": self.encoder, "setting": {"recipe": self.recipe.name}}

    def __str__(self) -> str:
        return f"{_name(self.encoder, self.apart)} (seed {self.seed})"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What evaluations and fine-tunings have in common: both end with scores, in a folder of the study.

    Attributes:
        encoder: label of the encoder.
        pretraining_seed: of the encoder; None for a model that was given.
        label: its column in the report.
        resources: held while it runs.
        task: name in the registry of tasks.
        model: folder or hub id; empty as long as the encoder is not there.
        data: the task's files or folders, none where a run has its own.
        languages: those to score; all that are found if None.
        content: hashes of what the scores follow from beside the package: the task's files, a model that was given, and
            the sources of a task of the user's own.
        apart: languages in which its encoder differs from others of the same label.
    """

    kind: ClassVar[str]
    work: ClassVar[str] = "scoring"
    encoder: str
    pretraining_seed: int | None
    label: str
    resources: Resources
    task: str
    model: str
    data: tuple[str, ...] = ()
    languages: tuple[str, ...] | None = None
    content: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of its folder: cells that compute the same have equal names."""
        return f"{self.task}-{hash_value(self._content)[:12]}"

    @property
    def _content(self) -> dict[str, Any]:
        own = {"content": self.content} if self.content else {}
        return own | {"task": self.task, "model": self.model, "data": self.data, "languages": self.languages}

    @property
    def seed(self) -> int | None:
        """Of what was trained last."""
        return self.pretraining_seed

    @property
    def described(self) -> dict[str, Any]:
        """What it is, for study.json."""
        return {"label": self.label, "task": self.task}

    @property
    def params(self) -> dict[str, Any]:
        """What MLflow is told of it beside its encoder."""
        return {"task": self.task}

    def folder(self, study: Path) -> Path:
        """Where it is in the folder of a study."""
        return study / CELLS / self.name

    @property
    def _who(self) -> str:
        name = _name(self.label, self.apart)
        return name if self.pretraining_seed is None else f"{name} (seed {self.pretraining_seed})"


@dataclass(frozen=True, kw_only=True)
class Evaluation(Cell):
    """An encoder scored on a task without training."""

    kind: ClassVar[str] = "evaluation"

    def __str__(self) -> str:
        folders = [Path(path).name for path in self.data]
        on = f" on {', '.join(folders)}" if folders not in ([], [self.task]) else ""
        return f"{self._who}: {self.task}{on}"


@dataclass(frozen=True, kw_only=True)
class Trial(Cell):
    """An encoder fine-tuned for a task with one setting, then scored.

    Attributes:
        settings: learning rate, epochs, batch size, seed.
        training: what is made of the training files.
        train_language: see `tune_task`.
        after_choice: it is run only if its setting was chosen, under other seeds than those of the search.
        searched: names of the settings that other cells have other values of.
    """

    kind: ClassVar[str] = "finetuning"
    settings: FineTuning = field(default_factory=FineTuning)
    training: Training = field(default_factory=Training)
    train_language: str = "en"
    after_choice: bool = False
    searched: tuple[str, ...] = ()

    @property
    def _content(self) -> dict[str, Any]:
        own = {"settings": self.settings.model_dump(), "training": self.training.model_dump()}
        return super()._content | own | {"train_language": self.train_language}

    @property
    def target(self) -> str:
        """The language that its model is for, of a training with a model a language; empty for any other."""
        return self.training.languages[0] if self.training.per_language else ""

    @property
    def search(self) -> tuple[str, str, str, str, str]:
        """Encoder, task, language, training and its target: among trials of the same, one setting is chosen."""
        return self.encoder, self.task, self.train_language, self.training.name, self.target

    @property
    def setting(self) -> dict[str, Any]:
        """What is chosen: everything of the settings but the seed."""
        return self.settings.model_dump(exclude={"seed"})

    @property
    def seed(self) -> int:
        """Of fine-tuning."""
        return self.settings.seed

    @property
    def work(self) -> str:  # type: ignore[override]
        """How much there is to do."""
        return f"{self.settings.num_train_epochs} epochs"

    @property
    def described(self) -> dict[str, Any]:
        """What it is, for study.json."""
        how = {"train_language": self.train_language, "training": self.training.name, "setting": self.setting}
        return super().described | how

    @property
    def params(self) -> dict[str, Any]:
        """What MLflow is told of it beside its encoder: defaults too, so that trials can be compared."""
        how = {"training": self.training.name, "train_language": self.train_language}
        how["training_languages"] = ",".join(self.training.languages)
        return (
            super().params
            | self.settings.model_dump(exclude_none=True)
            | {name: value for name, value in how.items() if value}
        )

    def __str__(self) -> str:
        settings, language = self.settings, "" if self.train_language == "en" else f" ({self.train_language})"
        language += f" in {self.target}" if self.target else ""
        always = ("learning_rate", "num_train_epochs", "train_batch_size")
        others = "".join(f"{name} {getattr(settings, name)}, " for name in self.searched if name not in always)
        return (
            f"{self._who}: {self.task}{language}, lr {settings.learning_rate:g}, {self.work}, "
            f"batch {settings.train_batch_size}, {others}seed {settings.seed}"
        )


def _name(label: str, apart: tuple[str, ...]) -> str:
    return f"{label} [{', '.join(apart)}]" if apart else label


Job = Pretraining | Cell


def state_of(folder: Path) -> str:
    """What the folder of a fine-tuning or an evaluation says: finished, stopped early, or waiting to be run."""
    if whole_manifest(folder, "kind") is not None and are_whole(folder / SCORES):
        return FINISHED
    return STOPPED if (folder / STOP_MARK).is_file() else WAITING
