"""Cells of a study: pretrainings, fine-tunings and evaluations; each has a folder that its content names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xalign_ray.models.families import LANGUAGES_KEY
from xalign_ray.studies.declared import Resources
from xalign_ray.tasks.task import ENGLISH
from xalign_ray.work.artifacts import hash_value, read_json, write_json
from xalign_ray.work.run_folder import CHOICES

PRETRAINING, FINETUNING, EVALUATION = "pretraining", "finetuning", "evaluation"
COMMAND = "command"  # kind of the manifest of what one makes, and the beginning of its folder's name
CELLS = "cells"
WAITING, RUNNING, FINISHED, STOPPED = "waiting", "running", "finished", "stopped"
FAILED, NOT_CHOSEN = "failed", "not chosen"
TOKENIZED = "tokenized"  # training sets that the fine-tunings of a study share; removed when it is over


@dataclass(eq=False)
class Encoder:
    """An encoder of a study, pretrained by one of its cells or given as a model.

    Attributes:
        label: shared by the seeds of a recipe.
        root: where relative paths of `data` start; of a command, the folder in which it runs.
        seed: of pretraining; None for a given model.
        pretraining: the cell that makes it; None for a given model.
        model: folder or hub id; empty until the pretraining has ended.
        made: hash of the manifest of the pretraining: an encoder that was made again is scored again.
        step: checkpoint of the pretraining; None for the last.
        languages: tested with this encoder alone; all if empty.
    """

    label: str
    root: Path
    seed: int | None = None
    pretraining: Cell | None = None
    model: str = ""
    made: str = ""
    step: int | None = None
    languages: tuple[str, ...] = ()

    @property
    def apart(self) -> tuple[str, ...]:
        """Languages that distinguish encoders of one label; all of them have English."""
        return tuple(language for language in self.languages if language != ENGLISH)

    @property
    def known_languages(self) -> Sequence[str]:
        """Languages with an embedding, by the recipe or config.json; empty where the encoder takes any language."""
        if recipe := self.pretraining and self.pretraining.recipe:
            return recipe.config.languages if recipe.config.model.language_embeddings else ()
        path = Path(self.model) / "config.json"
        has_config = self.model and path.is_file()
        return read_json(path, "It is the encoder's.").get(LANGUAGES_KEY) or () if has_config else ()


@dataclass(eq=False, kw_only=True)
class Cell:
    """One job of a study.

    Attributes:
        kind: PRETRAINING, in the folder of an ordinary run, or of the study where a command makes the encoder;
            FINETUNING or EVALUATION, which end with scores in a folder of the study.
        title: names it for the user.
        label: its column in the report.
        resources: reserved while it runs.
        source: the encoder that is made, or scored.
        recipe: the `Recipe` of a pretraining, with its seed and output.
        command: of a pretraining by another program; only `{out}` in it is not filled.
        needs: the pretraining that must have finished before, if that is a cell too.
        task: name in the registry of tasks.
        data: the task's files or folders; empty where a run has its own.
        languages: those to score; all that are found if None.
        content: hashes of further inputs: the task's files, a given model, the code that scores.
        settings, training, train_language: `FineTuning`, `Training` and language of a fine-tuning, see `tune_task`.
        after_choice: runs only if its setting was chosen, with seeds that the search did not use.
    """

    kind: str
    label: str
    resources: Resources
    source: Encoder
    title: str = ""
    recipe: Any = None
    command: str = ""
    needs: Cell | None = None
    task: str = ""
    data: tuple[str, ...] = ()
    languages: tuple[str, ...] | None = None
    content: tuple[str, ...] = ()
    settings: Any = None
    training: Any = None
    train_language: str = ENGLISH
    after_choice: bool = False

    def __str__(self) -> str:
        return self.title

    @property
    def encoder(self) -> str:
        """Label of the encoder."""
        return self.source.label

    @property
    def model(self) -> str:
        """Folder or hub id of the encoder that is scored; empty until it has been pretrained."""
        return self.source.model

    @property
    def seed(self) -> int | None:
        """Seed of the last training; None of a given model."""
        return self.settings.seed if self.settings else self.source.seed

    @property
    def work(self) -> str:
        """Its length, in words."""
        if self.settings:
            return f"{self.settings.num_train_epochs} epochs"
        return self.recipe.config.train.in_words if self.recipe else self.command or "scoring"

    @property
    def name(self) -> str:
        """Name of the folder; cells that compute the same have equal names."""
        content: dict[str, Any] = {"content": self.content} if self.content else {}
        content |= {"task": self.task, "model": self.model, "data": self.data, "languages": self.languages}
        if self.source.made and self.task:
            content |= {"made": self.source.made}
        if self.settings:
            content |= {"settings": self.settings.model_dump(), "training": self.training.model_dump()}
            content |= {"train_language": self.train_language}
        if self.command:
            content |= {"command": self.command}
        return f"{self.task or COMMAND}-{hash_value(content)[:12]}"

    def folder(self, study: Path) -> Path:
        """The folder of an evaluation or a fine-tuning in the folder of a study."""
        return study / CELLS / self.name

    @property
    def setting(self) -> dict[str, Any]:
        """The choice of a search: all settings but the seed."""
        return self.settings.model_dump(exclude={"seed"})

    @property
    def search(self) -> dict[str, str]:
        """One setting is chosen among the fine-tunings that share these.

        `target` is the language of the model where each language has a model.
        """
        target = self.training.languages[0] if self.training.per_language else ""
        what = {"encoder": self.encoder, "task": self.task, "train_language": self.train_language}
        return what | {"training": self.training.name, "target": target}

    @property
    def params(self) -> dict[str, Any]:
        """Parameters in MLflow, in addition to the encoder's: with defaults, so that fine-tunings can be compared."""
        if not self.settings:
            return {"task": self.task}
        how = {"training": self.training.name, "train_language": self.train_language}
        how |= {"training_languages": ",".join(self.training.languages)} if self.training.languages else {}
        return {"task": self.task} | self.settings.model_dump(exclude_none=True) | how


@dataclass(frozen=True, slots=True)
class Choice:
    """The settings that were tried, and which of them is kept, as choices.json has them.

    Attributes:
        encoder, task, train_language, training, target: as `Cell.search`.
        candidates: by setting, without the seed: the setting, and the development score of each fine-tuning that
            finished, by its name.
        chosen: place among the candidates; None where no fine-tuning has finished.
    """

    encoder: str
    label: str
    task: str
    train_language: str
    training: str
    target: str
    candidates: Sequence[Mapping[str, Any]]
    chosen: int | None

    @property
    def kept(self) -> Mapping[str, Any] | None:
        """The candidate that was chosen."""
        return None if self.chosen is None else self.candidates[self.chosen]


def choose(cells: Sequence[Cell], development: Mapping[str, float]) -> list[Choice]:
    """The best setting by mean development score, over fine-tuning seeds and then over encoders; the first of equals.

    Only settings with the most finished seeds compete: a mean over fewer is less certain.

    Args:
        cells: all fine-tunings of the study that can be named.
        development: score of each that has finished, by its name.
    """
    from xalign_ray.results.aggregate import over_seeds  # here: pandas costs every importer half a second

    by_search: dict[str, dict[str, list[Cell]]] = {}
    for cell in cells:
        by_search.setdefault(hash_value(cell.search), {}).setdefault(hash_value(cell.setting), []).append(cell)
    choices = []
    for by_setting in by_search.values():
        candidates, means = [], []
        for same in by_setting.values():
            done = [cell for cell in same if cell.name in development]
            scores = {cell.name: development[cell.name] for cell in done}
            candidates.append({"setting": same[0].setting, "development": scores})
            means.append(over_seeds([(cell.source.seed, development[cell.name]) for cell in done]))
        most = max(len(candidate["development"]) for candidate in candidates)
        complete = [at for at, candidate in enumerate(candidates) if most and len(candidate["development"]) == most]
        chosen = max(complete, key=means.__getitem__, default=None)
        first = next(iter(by_setting.values()))[0]
        choices.append(Choice(**first.search, label=first.label, candidates=candidates, chosen=chosen))
    return choices


def write_choices(folder: Path, choices: Sequence[Choice]) -> None:
    """Writes choices.json; call it before any test score is read."""
    write_json(folder / CHOICES, [asdict(choice) for choice in choices])
