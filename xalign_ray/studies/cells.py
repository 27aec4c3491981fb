"""Cells of a study: pretrainings, fine-tunings and evaluations; each has a folder that its content names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from xalign_ray.config.load import Recipe
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.training_set import Training
from xalign_ray.models.families import LANGUAGES_KEY
from xalign_ray.studies.declared import Resources
from xalign_ray.tasks.task import ENGLISH
from xalign_ray.work.artifacts import hash_value, read_json, write_json
from xalign_ray.work.run_folder import CHOICES

CELLS = "cells"
WAITING, RUNNING, FINISHED, STOPPED = "waiting", "running", "finished", "stopped"
FAILED, NOT_CHOSEN = "failed", "not chosen"
TOKENIZED = "tokenized"  # training sets that the fine-tunings of a study share; removed when it is over


@dataclass(frozen=True, eq=False)
class Pretraining:
    """A recipe with one seed, trained by Ray Train in the folder of an ordinary run.

    Attributes:
        encoder: label of the encoder.
        recipe: resolved, with its seed and output.
        resources: of its workers and their feed.
        needs: the pretraining that it continues, if that is a cell of the study too.
        apart: languages that distinguish its encoder from others of the same label.
    """

    kind: ClassVar[str] = "pretraining"
    encoder: str
    recipe: Recipe
    resources: Resources
    needs: Pretraining | None = None
    apart: tuple[str, ...] = ()

    @property
    def seed(self) -> int:
        """Seed of pretraining."""
        return self.recipe.config.seed

    @property
    def work(self) -> str:
        """Length of the training, in words."""
        return self.recipe.config.train.in_words

    @property
    def described(self) -> dict[str, Any]:
        """Fields of study.json."""
        return {"label": self.encoder, "setting": {"recipe": self.recipe.name}}

    def __str__(self) -> str:
        return f"{_name(self.encoder, self.apart)} (seed {self.seed})"


@dataclass(eq=False)
class Encoder:
    """An encoder of a study, pretrained by one of its cells or given as a model.

    Attributes:
        label: shared by the seeds of a recipe.
        root: where relative paths of `data` start.
        seed: of pretraining; None for a given model.
        pretraining: the cell that makes it; None for a given model.
        model: folder or hub id; empty until the pretraining has ended.
        step: checkpoint of the pretraining; None for the last.
        languages: tested with this encoder alone; all if empty.
    """

    label: str
    root: Path
    seed: int | None = None
    pretraining: Pretraining | None = None
    model: str = ""
    step: int | None = None
    languages: tuple[str, ...] = ()

    @property
    def apart(self) -> tuple[str, ...]:
        """Languages that distinguish encoders of one label; all of them have English."""
        return without_english(self.languages)

    @property
    def known_languages(self) -> Sequence[str]:
        """Languages with an embedding, by the recipe or config.json; empty where the encoder takes any language."""
        if self.pretraining:
            config = self.pretraining.recipe.config
            return config.languages if config.model.language_embeddings else ()
        path = Path(self.model) / "config.json"
        return read_json(path, "It is the encoder's.").get(LANGUAGES_KEY) or () if path.is_file() else ()


def without_english(languages: tuple[str, ...]) -> tuple[str, ...]:
    """The languages beside English."""
    return tuple(language for language in languages if language != ENGLISH)


@dataclass(eq=False, kw_only=True)
class Cell:
    """An evaluation or a fine-tuning: both end with scores in a folder of the study.

    Attributes:
        source: the encoder.
        label: its column in the report.
        resources: reserved while the cell runs.
        task: name in the registry of tasks.
        data: the task's files or folders; empty where a run has its own.
        languages: those to score; all that are found if None.
        content: hashes of further inputs: the task's files, a given model, the source of a user's own task.
    """

    kind: ClassVar[str]
    work: ClassVar[str] = "scoring"
    source: Encoder
    label: str
    resources: Resources
    task: str
    data: tuple[str, ...] = ()
    languages: tuple[str, ...] | None = None
    content: tuple[str, ...] = ()

    @property
    def encoder(self) -> str:
        """Label of the encoder."""
        return self.source.label

    @property
    def model(self) -> str:
        """Folder or hub id of the encoder; empty until it has been pretrained."""
        return self.source.model

    @property
    def name(self) -> str:
        """Name of the folder; cells that compute the same have equal names."""
        return f"{self.task}-{hash_value(self._content)[:12]}"

    @property
    def _content(self) -> dict[str, Any]:
        content = {"content": self.content} if self.content else {}
        return content | {"task": self.task, "model": self.model, "data": self.data, "languages": self.languages}

    @property
    def seed(self) -> int | None:
        """Seed of the last training."""
        return self.source.seed

    @property
    def described(self) -> dict[str, Any]:
        """Fields of study.json."""
        return {"label": self.label, "task": self.task}

    @property
    def params(self) -> dict[str, Any]:
        """Parameters in MLflow, in addition to the encoder's."""
        return {"task": self.task}

    def folder(self, study: Path) -> Path:
        """The cell's folder in the folder of a study."""
        return study / CELLS / self.name

    @property
    def _who(self) -> str:
        name = _name(self.label, self.source.apart)
        return name if self.source.seed is None else f"{name} (seed {self.source.seed})"


@dataclass(eq=False, kw_only=True)
class Evaluation(Cell):
    """An encoder scored on a task without training."""

    kind: ClassVar[str] = "evaluation"

    def __str__(self) -> str:
        folders = [Path(path).name for path in self.data]
        on = f" on {', '.join(folders)}" if folders not in ([], [self.task]) else ""
        return f"{self._who}: {self.task}{on}"


@dataclass(eq=False, kw_only=True)
class Trial(Cell):
    """An encoder fine-tuned for a task with one setting, then scored.

    Attributes:
        settings: learning rate, epochs, batch size, seed.
        training: how the training set is made of the training files.
        train_language: see `tune_task`.
        after_choice: runs only if its setting was chosen, with seeds that the search did not use.
        searched: names of the settings whose values differ between cells.
    """

    kind: ClassVar[str] = "finetuning"
    settings: FineTuning = field(default_factory=FineTuning)
    training: Training = field(default_factory=Training)
    train_language: str = "en"
    after_choice: bool = False
    searched: tuple[str, ...] = ()

    @property
    def _content(self) -> dict[str, Any]:
        of_trial = {"settings": self.settings.model_dump(), "training": self.training.model_dump()}
        return super()._content | of_trial | {"train_language": self.train_language}

    @property
    def target(self) -> str:
        """The language of its model where each language has a model; else empty."""
        return self.training.languages[0] if self.training.per_language else ""

    @property
    def search(self) -> tuple[str, str, str, str, str]:
        """Encoder, task, language, training and target: one setting is chosen among the trials that share them."""
        return self.encoder, self.task, self.train_language, self.training.name, self.target

    @property
    def setting(self) -> dict[str, Any]:
        """The choice of a search: all settings but the seed."""
        return self.settings.model_dump(exclude={"seed"})

    @property
    def seed(self) -> int:
        """Seed of fine-tuning."""
        return self.settings.seed

    @property
    def work(self) -> str:  # type: ignore[override]
        """Length of the training, in words."""
        return f"{self.settings.num_train_epochs} epochs"

    @property
    def described(self) -> dict[str, Any]:
        """Fields of study.json."""
        how = {"train_language": self.train_language, "training": self.training.name, "setting": self.setting}
        return super().described | how

    @property
    def params(self) -> dict[str, Any]:
        """Parameters in MLflow, in addition to the encoder's: with defaults, so that trials can be compared."""
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


@dataclass(frozen=True, slots=True)
class Candidate:
    """A setting with the fine-tunings that tried it.

    Attributes:
        setting: without the seed.
        development: score on the development file, by name of the cell, of those that finished.
    """

    setting: Mapping[str, Any]
    development: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Choice:
    """The settings that were tried, and which of them is kept: None where no fine-tuning has finished."""

    encoder: str
    label: str
    task: str
    train_language: str
    training: str
    target: str
    candidates: Sequence[Candidate]
    chosen: int | None

    @property
    def search(self) -> tuple[str, str, str, str, str]:
        """As a cell names it."""
        return self.encoder, self.task, self.train_language, self.training, self.target

    @property
    def kept(self) -> Candidate | None:
        """The candidate that was chosen."""
        return None if self.chosen is None else self.candidates[self.chosen]


def choose(cells: Sequence[Trial], development: Mapping[str, float]) -> list[Choice]:
    """The best setting by mean development score, over fine-tuning seeds and then over encoders; the first of equals.

    Only settings with the most finished seeds compete: a mean over fewer is less certain.

    Args:
        cells: all fine-tunings of the study that can be named.
        development: score of each that has finished, by its name.
    """
    searches = dict.fromkeys(cell.search for cell in cells)
    return [_choose([cell for cell in cells if cell.search == search], development) for search in searches]


def write_choices(folder: Path, choices: Sequence[Choice]) -> None:
    """Writes choices.json; call it before any test score is read."""
    write_json(folder / CHOICES, [asdict(choice) for choice in choices])


def _choose(cells: Sequence[Trial], development: Mapping[str, float]) -> Choice:
    from xalign_ray.results.aggregate import over_seeds  # here: pandas costs every importer half a second

    by_setting: dict[str, list[Trial]] = {}
    for cell in cells:
        by_setting.setdefault(hash_value(cell.setting), []).append(cell)
    candidates = [
        Candidate(same[0].setting, {trial.name: development[trial.name] for trial in same if trial.name in development})
        for same in by_setting.values()
    ]
    means = [
        over_seeds([(trial.source.seed, development[trial.name]) for trial in same if trial.name in development])
        for same in by_setting.values()
    ]
    most = max(len(candidate.development) for candidate in candidates)
    complete = [number for number, trial in enumerate(candidates) if most and len(trial.development) == most]
    chosen = max(complete, key=means.__getitem__, default=None)
    encoder, task, language, training, target = cells[0].search
    return Choice(encoder, cells[0].label, task, language, training, target, candidates, chosen)
