"""Plans the cells of a study: which encoders are pretrained, fine-tuned and evaluated, and on which files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from xalign_ray.config.code import SCORES_CODE, package_code, source_hashes
from xalign_ray.config.derive import FEED_CPUS, needed_recipes
from xalign_ray.config.load import Recipe, load_recipe
from xalign_ray.config.schema import DEMO, RunConfig
from xalign_ray.demo.first_use import open_world
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.training_set import Training, TuningFiles
from xalign_ray.models.hub import at_commit, revision_of
from xalign_ray.models.tokenized import check_languages
from xalign_ray.studies.cells import EVALUATION, FINETUNING, PRETRAINING, Cell, Encoder
from xalign_ray.studies.command import paths_in
from xalign_ray.studies.declared import (
    EncoderConfig,
    EvaluationConfig,
    FineTuningConfig,
    Resources,
    StudyConfig,
)
from xalign_ray.tasks.registry import TASKS, TUNED_TASKS
from xalign_ray.tasks.task import ENGLISH
from xalign_ray.tasks.task_files import name_others
from xalign_ray.work.artifacts import hash_file, hash_files, hash_value
from xalign_ray.work.storage import is_url

HashOf = Callable[[str], str]  # of a path: see `_hash`


@dataclass(frozen=True)
class Plan:
    """All cells of a study.

    Attributes:
        study: as declared, with the languages that have a model each.
        encoders: seed by seed, so that all recipes can be compared after the first seed.
        cells: each once, in the order in which they start.
    """

    study: StudyConfig
    encoders: tuple[Encoder, ...]
    cells: tuple[Cell, ...]

    @property
    def pretrainings(self) -> list[Cell]:
        """Of recipes, each after the one that it continues."""
        return [cell for cell in self.cells if cell.recipe]

    @property
    def finetunings(self) -> list[Cell]:
        """In the order of the plan."""
        return [cell for cell in self.cells if cell.kind == FINETUNING]


def _make_cells(study: StudyConfig, encoders: Sequence[Encoder], hash_of: HashOf) -> tuple[Cell, ...]:
    """Every cell once. Encoders that share pretraining and languages share cells."""
    cells: dict[Any, Cell] = {}
    for encoder in encoders:
        chain: list[Cell] = []
        needed = encoder.pretraining
        while needed:
            chain.insert(0, needed)
            needed = needed.needs
        cells |= dict(zip(chain, chain, strict=True))
        made_by = encoder.pretraining, encoder.step, encoder.model, encoder.apart
        for cell in _scored_cells(study, encoders, encoder, hash_of):
            cells.setdefault((made_by, cell.label, cell.name), cell)
    return tuple(cells.values())


def _scored_cells(study: StudyConfig, encoders: Sequence[Encoder], encoder: Encoder, hash_of: HashOf) -> Iterator[Cell]:
    """The evaluations and fine-tunings of one encoder."""

    def cell(
        entry: EvaluationConfig | FineTuningConfig,
        label: str,
        paths: Sequence[str],
        what: str,
        dictionaries: Sequence[str] = (),
        **facts: Any,
    ) -> Cell:
        data = _whole(encoder.root, paths)
        inputs = (*data, *(() if encoder.pretraining else (encoder.model,)), *dictionaries)
        code = (package_code(*SCORES_CODE), *(source_hashes(entry.task) if "." in entry.task else ()))
        return Cell(
            label=label,
            title=f"{_title(label, encoder)}: {entry.task}{what}",
            resources=entry.resources or study.resources,
            source=encoder,
            needs=encoder.pretraining,
            task=entry.task,
            data=data,
            content=(*filter(None, map(hash_of, inputs)), *code),
            **facts,
        )

    for entry in study.evaluations:
        languages = _narrow(entry.languages, encoder.apart)  # what needs no training is about the others
        if languages is not None:
            on = f" on {folder}" if (folder := Path(entry.data).name) not in ("", entry.task) else ""
            paths = (entry.data,) if entry.data else ()
            yield cell(entry, encoder.label, paths, on, kind=EVALUATION, languages=languages or None)
    asha = study.search.asha is not None
    is_later = encoder is not next(entry for entry in encoders if entry.label == encoder.label)
    for entry in study.finetunings:
        settings = study.search.settings_to_try(entry.settings)
        searched = {name for name in settings[0] if any(entry[name] != settings[0][name] for entry in settings)}
        trainings = [alone for training in entry.training for alone in training.models]
        seeds = entry.seeds or ((0,) if encoder.pretraining else study.seeds)
        for seed, training, setting in itertools.product(seeds, trainings, settings):
            asked = training.languages if training.per_language else entry.languages
            if (languages := _narrow(asked, encoder.languages)) is None:
                continue
            dictionaries = _whole(encoder.root, training.dictionaries)
            tuned = FineTuning(**setting, seed=seed)
            yield cell(
                entry,
                study.label_of(encoder.label, training.name),
                entry.data,
                _how(tuned, training, entry.train_language, searched),
                dictionaries,
                kind=FINETUNING,
                languages=languages or None,
                settings=tuned,
                training=training.model_copy(update={"dictionaries": dictionaries}),
                train_language=entry.train_language,
                after_choice=asha and (is_later or seed != seeds[0]),
            )


def _title(label: str, encoder: Encoder) -> str:
    """An encoder for the user, with what distinguishes it from others of the label."""
    apart = f" [{', '.join(encoder.apart)}]" if encoder.apart else ""
    return f"{label}{apart}" + ("" if encoder.seed is None else f" (seed {encoder.seed})")


def _how(settings: FineTuning, training: Training, train_language: str, searched: set[str]) -> str:
    """A fine-tuning for the user, with the settings that are searched."""
    language = "" if train_language == ENGLISH else f" ({train_language})"
    language += f" in {training.languages[0]}" if training.per_language else ""
    always = {"learning_rate", "num_train_epochs", "train_batch_size"}
    others = "".join(f"{name} {value}, " for name, value in settings if name in searched - always)
    return (
        f"{language}, lr {settings.learning_rate:g}, {settings.num_train_epochs} epochs, "
        f"batch {settings.train_batch_size}, {others}seed {settings.seed}"
    )


def _hash(path: str) -> str:
    """Hash of a file, or of a folder's files but its model card; the commit of a hub model; empty in a store."""
    file = Path(path)
    if file.is_file():
        return hash_file(file)
    if file.is_dir():
        return hash_value({name: value for name, value in hash_files(file).items() if not name.endswith(".md")})
    return "" if is_url(path) else revision_of(at_commit(path))[1].get("revision", "")


def _narrow(asked: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...] | None:
    """The requested languages that the encoder has too; an empty list means all. None if no language is in both."""
    if not asked or not own:
        return asked or own
    return tuple(language for language in asked if language in own) or None


def plan_study(study: StudyConfig, output: Path, open_model: Callable[[str], str]) -> Plan:
    """The plan of a study, whose files `check_task_files` looks for; starts nothing, and writes nothing but the
    embedded world where the study needs it.

    Args:
        study: as it was declared.
        output: folder of runs.
        open_model: folder or hub id of a model that was given.

    Raises:
        ConfigError: a recipe cannot be run, or a model is not there.
        DataError: the files are missing that list the languages with a model each.
    """
    pretrainings: dict[str, Cell] = {}
    hash_of = cache(_hash)  # each file is read once
    encoders: list[Encoder] = []
    for number in range(max(len(entry.seeds or study.seeds) for entry in study.encoders)):
        for entry in study.encoders:
            seeds = entry.seeds or study.seeds
            if number >= (1 if entry.model else len(seeds)):
                continue
            seed, made, root = seeds[number], None, study.root
            if entry.recipe:
                recipe = _recipe_of(entry, study, seed, output)
                made = _pretraining(entry, recipe, pretrainings)
                _check_step(entry, recipe.config)
                of_recipe = _open(recipe.config.data.root, output)
                root = root or str(of_recipe)
            elif entry.command:
                made = _command(entry, study, seed, hash_of)
                made = pretrainings.setdefault(made.name, made)
            root = _open(root or _root_of_recipes(study, output), output)
            model = open_model(entry.model) if entry.model else ""
            seed = None if entry.model else seed
            encoders.append(Encoder(entry.shown, root, seed, made, model, step=entry.step, languages=entry.languages))
    labels: dict[tuple[Cell | str, int | None], str] = {}
    for encoder in encoders:
        other = labels.setdefault((encoder.pretraining or encoder.model, encoder.step), encoder.label)
        if other != encoder.label:
            raise ConfigError(f"encoders: '{other}' and '{encoder.label}' are the same encoder; remove one.")
    if missing := [entry.task for entry in study.evaluations if not entry.data and TASKS[entry.task].needs_data]:
        raise ConfigError(f"evaluations: {missing[0]} needs `data`, the files that it is scored on.")
    roots = dict.fromkeys(encoder.root for encoder in encoders)
    study = study.model_copy(
        update={"finetunings": tuple(_with_targets(entry, [*roots]) for entry in study.finetunings)}
    )
    return Plan(study, tuple(encoders), _make_cells(study, encoders, hash_of))


def check_contents(plan: Plan) -> list[str]:
    """Reads the files of all fine-tunings; returns a sentence for each that leaves examples out.

    Raises:
        DataError: a file is malformed or cannot be scored, which training would find out at its end.
    """
    contents: dict[Any, str] = {}
    for cell in plan.finetunings:
        where = cell.task, cell.data, cell.languages, cell.train_language
        how = cell.training, cell.settings.max_train_samples
        if (where, how) not in contents:
            files = _find_files(where[0], [*map(Path, where[1])], *where[2:])
            contents[where, how] = files.check_contents(*how)
    left_out = dict.fromkeys(contents.values())
    return [*filter(None, left_out)]


def check_task_files(plan: Plan) -> list[str]:
    """Looks at the names of files, so that a wrong path costs moments; a sentence for each that is not read.

    Languages that an encoder has no embedding for are refused, too. Files of tasks without training are
    small, and are read.

    Raises:
        DataError: files are missing; names them, and the study's source of the data.
    """
    sentences: dict[str, None] = {}
    read = cache(lambda task, path, languages: TASKS[task].check_data(path, languages))  # once, not for every encoder
    try:
        for encoder in plan.encoders:
            sentences |= dict.fromkeys(_check_task_files(plan.study, encoder, read))
    except DataError as error:
        made_by = plan.study.data_from
        raise DataError(f"{error} Its data come from: {made_by}" if made_by else str(error)) from None
    return list(sentences)


def _check_task_files(
    study: StudyConfig, encoder: Encoder, read: Callable[[str, Path, Sequence[str] | None], Iterable[str]]
) -> Iterator[str]:
    name, known_languages = encoder.model or encoder.label, encoder.known_languages
    for entry in study.evaluations:
        if entry.data and not (encoder.root / entry.data).exists():
            raise DataError(f"evaluations: {encoder.root / entry.data}, data of {entry.task}, is missing.")
        if entry.data and (languages := _narrow(entry.languages, encoder.apart)) is not None:
            check_languages(name, known_languages, read(entry.task, encoder.root / entry.data, languages or None))
    for entry in study.finetunings:
        if (languages := _narrow(entry.languages, encoder.languages)) is not None:
            folders = [encoder.root / path for path in entry.data]
            files = _find_files(entry.task, folders, languages or None, entry.train_language)
            check_languages(
                name, known_languages, {code for training in entry.training for code in files.spoken(training)}
            )
            if others := name_others(files.found, folders).lstrip():
                yield f"{entry.task}: {others}"
            wanted = {code for training in entry.training if training.per_language for code in training.languages}
            if missing := sorted(wanted - {*_targets(entry, folders)} if wanted else ()):
                raise DataError(
                    f"{entry.task}: no model for {', '.join(missing)}: it needs a training and a test file."
                )


def _find_files(task: str, *arguments: Any) -> TuningFiles:
    return TuningFiles.find(TUNED_TASKS[task], *arguments)


def _check_step(encoder: EncoderConfig, config: RunConfig) -> None:
    last, interval = config.train.max_steps, config.checkpoint.save_steps
    saved = [0, *sorted({*range(interval, last, interval), last})[-config.checkpoint.save_total_limit :]]
    if encoder.step is not None and encoder.step not in saved:
        raise ConfigError(
            f"encoders: '{encoder.shown}' asks for step {encoder.step}; its run keeps {', '.join(map(str, saved))}. "
            "Name one of these, or change checkpoint.save_steps or checkpoint.save_total_limit."
        )


def _open(root: str, output: Path) -> Path:
    return (open_world(output) if root == DEMO else Path(root)).resolve()


def _root_of_recipes(study: StudyConfig, output: Path) -> str:
    """Of a model that was given: that of all recipes."""
    recipes = [_recipe_of(encoder, study, 0, output) for encoder in study.encoders if encoder.recipe]
    roots = {recipe.config.data.root for recipe in recipes}
    if len(roots) > 1:
        raise ConfigError(f"root: the recipes read {' and '.join(sorted(roots))}; name the folder of the tasks' data.")
    return next(iter(roots), "data")


def _with_targets(one: FineTuningConfig, roots: Sequence[Path]) -> FineTuningConfig:
    """With the languages named of each training that has a model a language: all that have the files, if none are."""
    if all(training.languages or not training.per_language for training in one.training):
        return one
    folders = [root / path for root in roots for path in one.data]
    if not (targets := _targets(one, folders)):
        raise DataError(f"{one.task}: a model a language needs training files in languages beside English.")
    trainings = (
        training.model_copy(update={"languages": training.languages or targets}) if training.per_language else training
        for training in one.training
    )
    return one.model_copy(update={"training": tuple(trainings)})


def _targets(one: FineTuningConfig, folders: Sequence[Path]) -> tuple[str, ...]:
    return _find_files(one.task, folders, one.languages or None, one.train_language).targets


def _recipe_of(encoder: EncoderConfig, study: StudyConfig, seed: int, output: Path) -> Recipe:
    common = (f"output={output}", f"track.mlflow={study.mlflow}", *encoder.settings, *study.settings, f"seed={seed}")
    return load_recipe(encoder.recipe, common)


def _command(entry: EncoderConfig, study: StudyConfig, seed: int, hash_of: HashOf) -> Cell:
    """The cell of a command with one seed, which runs in the current folder."""
    source = Encoder(entry.shown, Path.cwd(), seed, languages=entry.languages)
    command = entry.command.replace("{seed}", str(seed))
    return Cell(
        kind=PRETRAINING,
        label=entry.shown,
        title=_title(entry.shown, source),
        resources=entry.resources or study.resources,
        source=source,
        command=command,
        content=tuple(map(hash_of, paths_in(command))),
    )


def _pretraining(encoder: EncoderConfig, recipe: Recipe, cells: dict[str, Cell]) -> Cell:
    """The cell of a recipe, after those that it continues; `cells` holds each once, by its content."""
    below: Cell | None = None
    for needed in reversed(needed_recipes(recipe)):
        is_last = needed is recipe
        key = f"{needed.name} {needed.config.model_dump_json()}"
        if key not in cells:
            label, languages = (encoder.shown, encoder.languages) if is_last else (needed.name, ())
            source = Encoder(label, Path(), needed.config.seed, languages=languages)
            parallel = needed.config.parallel
            cells[key] = Cell(
                kind=PRETRAINING,
                label=label,
                title=_title(label, source),
                resources=Resources(
                    cpus=parallel.workers * parallel.cpus_per_worker + FEED_CPUS,
                    gpus=parallel.workers * parallel.gpus_per_worker,
                ),
                source=source,
                recipe=needed,
                needs=below,
            )
        below = cells[key]
    assert below is not None
    return below


def _whole(root: Path, paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(str((root / path).resolve()) for path in paths)
