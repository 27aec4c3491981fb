"""From a declared study to its cells: what is pretrained, and then fine-tuned and evaluated with each encoder."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xalign_ray.config.derive import FEED_CPUS
from xalign_ray.config.load import Recipe, load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.start import needed_recipes
from xalign_ray.data.inputs import open_root
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.experiments.cells import Cell, Evaluation, Job, Pretraining, Trial
from xalign_ray.experiments.declared import (
    AshaSearch,
    EncoderConfig,
    EvaluationConfig,
    FineTuningConfig,
    Resources,
    StudyConfig,
)
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.tune import check_files
from xalign_ray.tasks.registry import TUNED_TASKS, WITHOUT_DATA
from xalign_ray.tasks.task import ENGLISH


@dataclass(frozen=True)
class Encoder:
    """An encoder of a study: one that a cell pretrains, or a model that was given.

    Attributes:
        label: shared by the seeds of a recipe.
        seed: of pretraining; None for a model.
        pretraining: the cell that makes it.
        model: folder or hub id of one that was given.
        step: of the pretraining's checkpoint; None for its end.
        languages: tested with it; all if there are none.
    """

    label: str
    seed: int | None = None
    pretraining: Pretraining | None = None
    model: str = ""
    step: int | None = None
    languages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """All cells of a study.

    Attributes:
        study: as it was declared, and with the languages that have a model each.
        root: where its data are.
        encoders: seed by seed, so that after the first seed all recipes can be compared.
    """

    study: StudyConfig
    root: Path
    encoders: tuple[Encoder, ...]

    def jobs(self, models: Mapping[Encoder, str]) -> list[Job]:
        """Every cell once, in the order in which they start.

        Args:
            models: folder or hub id of the encoders that are there; cells of the others lack their model.
        """
        jobs: dict[Job, None] = {}
        for encoder in self.encoders:
            jobs |= dict.fromkeys(reversed([*_chain(encoder.pretraining)]))
            jobs |= dict.fromkeys(self._cells(encoder, models.get(encoder, encoder.model)))
        return list(jobs)

    @property
    def pretrainings(self) -> list[Pretraining]:
        """Each once, after the one that it continues."""
        return [job for job in self.jobs({}) if isinstance(job, Pretraining)]

    def _cells(self, encoder: Encoder, model: str) -> Iterator[Cell]:
        without_english = tuple(language for language in encoder.languages if language != ENGLISH)
        for one in self.study.evaluations:
            languages = _narrow(one.languages, without_english)  # what needs no training is about the others
            if languages is not None:
                common = self._common(encoder, model, one, encoder.label, languages)
                yield Evaluation(**common, data=_whole(self.root, (one.data,) if one.data else ()))
        asha = isinstance(self.study.search, AshaSearch)
        is_later = encoder is not next(one for one in self.encoders if one.label == encoder.label)
        for one in self.study.finetunings:
            settings = self.study.search.settings_to_try(one.settings)
            trainings = [alone for training in one.training for alone in training.models]
            for seed, training, setting in itertools.product(one.seeds, trainings, settings):
                asked = training.languages if training.per_language else one.languages
                if (languages := _narrow(asked, encoder.languages)) is None:
                    continue
                label = self.study.label_of(encoder.label, training.name)
                yield Trial(
                    **self._common(encoder, model, one, label, languages),
                    data=_whole(self.root, one.data),
                    settings=FineTuning(**setting, seed=seed),
                    training=training.model_copy(update={"dictionaries": _whole(self.root, training.dictionaries)}),
                    train_language=one.train_language,
                    after_choice=asha and (is_later or seed != one.seeds[0]),
                )

    def _common(
        self,
        encoder: Encoder,
        model: str,
        one: EvaluationConfig | FineTuningConfig,
        label: str,
        languages: tuple[str, ...],
    ) -> dict[str, Any]:
        return {
            "encoder": encoder.label,
            "pretraining_seed": encoder.seed,
            "label": label,
            "resources": one.resources or self.study.resources,
            "task": one.task,
            "model": model,
            "languages": languages or None,
        }


def _narrow(asked: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...] | None:
    """The languages that are asked for and an encoder's own, where none are all; None if there is none in both."""
    if not asked or not own:
        return asked or own
    return tuple(language for language in asked if language in own) or None


def _chain(cell: Pretraining | None) -> Iterator[Pretraining]:
    """A pretraining and those that it continues."""
    while cell is not None:
        yield cell
        cell = cell.needs


def plan_study(study: StudyConfig, output: Path, open_model: Callable[[str], str]) -> Plan:
    """The plan of a study; starts nothing, and writes nothing but the embedded world where that is asked for.

    Args:
        study: as it was declared.
        output: folder of runs.
        open_model: folder or hub id of a model that was given.

    Raises:
        ConfigError: a recipe cannot be run, a model or data are not there.
        DataError: a task's files are missing.
    """
    cells: dict[str, Pretraining] = {}
    encoders = []
    for place in range(max(len(one.seeds or study.seeds) for one in study.encoders)):
        for one in study.encoders:
            if one.model and not place:
                encoders.append(Encoder(one.shown, model=open_model(one.model), languages=one.languages))
            seeds = one.seeds or study.seeds
            if one.recipe and place < len(seeds):
                made = _pretraining(one, _recipe_of(one, study, seeds[place], output), cells)
                _check_step(one, made.recipe.config)
                encoders.append(Encoder(one.shown, seeds[place], made, step=one.step, languages=one.languages))
    _check_distinct(encoders)
    root = _root_of(study, encoders, output)
    for one in study.finetunings:
        check_task_files(one, root)
    for one in study.evaluations:
        if not one.data and one.task not in WITHOUT_DATA:
            raise ConfigError(f"evaluations: {one.task} needs `data`, the files that it is scored on.")
        if one.data and not (root / one.data).exists():
            raise ConfigError(f"evaluations: {root / one.data}, data of {one.task}, is missing.")
    finetunings = tuple(_with_targets(one, root) for one in study.finetunings)
    return Plan(study.model_copy(update={"finetunings": finetunings}), root, tuple(encoders))


def _check_step(encoder: EncoderConfig, config: RunConfig) -> None:
    last, every = config.train.max_steps, config.checkpoint.save_steps
    kept = [0, *sorted({*range(every, last, every), last})[-config.checkpoint.save_total_limit :]]
    if encoder.step is not None and encoder.step not in kept:
        raise ConfigError(
            f"encoders: '{encoder.shown}' asks for step {encoder.step}; its run keeps {', '.join(map(str, kept))}. "
            "Name one of these, or change checkpoint.save_steps or checkpoint.save_total_limit."
        )


def _check_distinct(encoders: Sequence[Encoder]) -> None:
    labels: dict[tuple[Pretraining | str, int | None], str] = {}
    for one in encoders:
        other = labels.setdefault((one.pretraining or one.model, one.step), one.label)
        if other != one.label:
            raise ConfigError(f"encoders: '{other}' and '{one.label}' are the same encoder; remove one.")


def _root_of(study: StudyConfig, encoders: Sequence[Encoder], output: Path) -> Path:
    roots = {one.pretraining.recipe.config.data.root for one in encoders if one.pretraining}
    if study.root is None and len(roots) > 1:
        raise ConfigError(f"root: the recipes read {' and '.join(sorted(roots))}; say where the tasks' data are.")
    return open_root(study.root or next(iter(roots), "data"), output).resolve()


def check_task_files(one: FineTuningConfig, root: Path) -> str:
    """Looks at names only, so that a wrong path costs moments; says which files are not read."""
    folders = [root / path for path in one.data]
    (dev_language,) = one.settings.dev_language or ("source",)
    return check_files(TUNED_TASKS[one.task], folders, one.languages or None, one.train_language, dev_language)


def _with_targets(one: FineTuningConfig, root: Path) -> FineTuningConfig:
    """With the languages named of each training that has a model a language."""
    if not any(training.per_language for training in one.training):
        return one
    folders = [root / path for path in one.data]
    found, _, tested = TUNED_TASKS[one.task].find_all(folders, one.languages or None, one.train_language)
    targets = tuple(language for language in tested if language in found["train"] and language != one.train_language)
    trainings = []
    for training in one.training:
        if training.per_language:
            wanted = tuple(language for language in training.languages if language in targets)
            if missing := [language for language in training.languages if language not in wanted]:
                raise DataError(f"{one.task}: no model for {', '.join(missing)}: it needs a training and a test file.")
            if not targets:
                raise DataError(f"{one.task}: {training.kind} needs training files in languages beside English.")
            training = training.model_copy(update={"languages": wanted or targets})
        trainings.append(training)
    return one.model_copy(update={"training": tuple(trainings)})


def _recipe_of(encoder: EncoderConfig, study: StudyConfig, seed: int, output: Path) -> Recipe:
    common = (f"output={output}", f"track.mlflow={study.mlflow}", *encoder.settings, *study.settings, f"seed={seed}")
    return load_recipe(encoder.recipe, common)


def _pretraining(encoder: EncoderConfig, recipe: Recipe, cells: dict[str, Pretraining]) -> Pretraining:
    """The cell of a recipe, after those that it continues; `cells` holds each once, by what it computes."""
    below: Pretraining | None = None
    for needed in reversed(needed_recipes(recipe)):
        own = needed is recipe
        key = f"{needed.name} {needed.config.model_dump_json()}"
        if key not in cells:
            parallel = needed.config.parallel
            cpus = parallel.workers * parallel.cpus_per_worker + FEED_CPUS
            resources = Resources(cpus=cpus, gpus=parallel.workers * parallel.gpus_per_worker)
            cells[key] = Pretraining(encoder.shown if own else needed.name, needed, resources, below)
        below = cells[key]
    assert below is not None
    return below


def _whole(root: Path, paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(str((root / path).resolve()) for path in paths)
