"""The declaration of a study: encoders, fine-tunings, evaluations, searches; read from YAML and checked."""

from __future__ import annotations

import itertools
import random
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, create_model, model_validator

from xalign_ray.config.explain import explain_validation, suggest
from xalign_ray.config.fields import Float, Frozen, Int, Positive, Uri
from xalign_ray.config.load import STUDIES, apply_setting, find_study, read_mapping
from xalign_ray.errors import ConfigError
from xalign_ray.finetune.settings import FineTuning, resolve_settings
from xalign_ray.finetune.training_set import Training
from xalign_ray.tasks.registry import TASKS, TUNED_TASKS, load_task
from xalign_ray.work.run_folder import EXPORT


def _as_list(given: Any) -> Any:
    return given if given is None or isinstance(given, list | tuple) else [given]


def _searched(kind: Any) -> Any:
    values: Any = Annotated[tuple[kind, ...], Field(min_length=1)]
    return Annotated[values | None, BeforeValidator(_as_list)]


_FIELDS: Any = {
    name: (_searched(field.rebuild_annotation()), None)
    for name, field in FineTuning.model_fields.items()
    if name != "seed"
}
Settings: type[Frozen] = create_model("Settings", __base__=Frozen, **_FIELDS)
"""Settings of fine-tuning, each a value or a list to search; the defaults are `FineTuning`'s."""
Options: type[Frozen] = create_model("Options", __base__=Settings, seed=(Int, 0))
"""What `xalign tune --set` may be given."""


GB = 1e9


class Resources(Frozen):
    """Resources of a running cell; whole numbers or fractions."""

    cpus: Annotated[Float, Field(gt=0)] = 1.0
    gpus: Annotated[Float, Field(ge=0)] = 0.0
    memory: Annotated[Float, Field(ge=0, description="GB")] = 0.0

    @property
    def named(self) -> dict[str, float]:
        """By Ray's names, those that are needed; memory in bytes."""
        amounts = {"CPU": self.cpus, "GPU": self.gpus, "memory": round(self.memory * GB)}
        return {name: amount for name, amount in amounts.items() if amount}

    def __str__(self) -> str:
        return ", ".join(resource_in_words(name, amount) for name, amount in self.named.items())


def resource_in_words(name: str, amount: float) -> str:
    """An amount of a resource of Ray, such as `2 CPU` or `13 GB`."""
    return f"{amount / GB:g} GB" if name == "memory" else f"{amount:g} {name}"


class EncoderConfig(Frozen):
    """Compared encoders: of a recipe or another program, made where they are missing, or a model."""

    recipe: Annotated[str, Field(description="pretrained with each seed")] = ""
    command: Annotated[
        str,
        Field(
            description="of any program, run with each `{seed}`: it writes an encoder, or a run of this package, into "
            "the folder `{out}`"
        ),
    ] = ""
    model: Annotated[str, Field(description="a run, an exported folder or a hub id")] = ""
    settings: Annotated[tuple[str, ...], Field(description="of the recipe, as given to --set")] = ()
    seeds: Annotated[tuple[Int, ...], Field(description="of pretraining; the study's if none are given")] = ()
    resources: Annotated[Resources | None, Field(description="of a command; the study's if null")] = None
    step: Annotated[
        Int | None,
        Field(ge=0, description="of a checkpoint that the recipe's run kept, 0 is untrained; the last if null"),
    ] = None
    languages: Annotated[
        tuple[str, ...],
        Field(description="tested with it alone; encoders that have them may share a label, as one a pair (WEAM)"),
    ] = ()
    label: Annotated[str, Field(description="how tables call it; recipe, settings and step, or model, if empty")] = ""

    @property
    def shown(self) -> str:
        """The label in tables."""
        step = () if self.step is None else (f"step {self.step}",)
        return self.label or " ".join((self.recipe or self.model or self.command, *self.settings, *step))

    @model_validator(mode="after")
    def _is_one(self) -> EncoderConfig:
        if sum(map(bool, (self.recipe, self.command, self.model))) != 1:
            raise ValueError("an encoder is given by one of recipe, command and model")
        if not self.recipe and (self.settings or self.step is not None):
            raise ValueError("settings and step are for recipes")
        if self.model and self.seeds:
            raise ValueError("seeds are of trainings; a model has none")
        if self.command and not any("{out}" in word for word in shlex.split(self.command)):
            raise ValueError("a command writes an encoder into {out}, and this one does not name it")
        return self


class FineTuningConfig(Frozen):
    """A task that every encoder is fine-tuned for, with every setting and seed."""

    task: str
    data: Annotated[
        tuple[str, ...],
        BeforeValidator(_as_list),
        Field(min_length=1, description="folder of its files, or several, below `root`"),
    ]
    languages: Annotated[tuple[str, ...], Field(description="those to test; all that are found if none")] = ()
    train_language: Annotated[str, Field(description="another than English is scored on itself: supervised")] = "en"
    training: Annotated[tuple[Training, ...], Field(min_length=1)] = (Training(),)
    settings: Settings = Settings()  # pyright: ignore[reportInvalidTypeForm]
    seeds: Annotated[
        tuple[Int, ...],
        Field(description="of fine-tuning; if none: one, and of a `model` those of the study's pretraining"),
    ] = ()
    resources: Annotated[Resources | None, Field(description="the study's if null")] = None

    @model_validator(mode="before")
    @classmethod
    def _has_settings_of_a_paper(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(task := given.get("task"), str):
            return given
        load_task(task)
        if task in TUNED_TASKS:
            return given | {"settings": resolve_settings(given.get("settings", {}), task)}
        return given

    @model_validator(mode="after")
    def _is_known(self) -> FineTuningConfig:
        _check_task(self.task, TUNED_TASKS)
        _check_once("training", [training.name for training in self.training])
        _check_once("seeds", self.seeds)
        _check_choice(self.task, self.settings)
        return self


class EvaluationConfig(Frozen):
    """A task without training, once for every encoder."""

    task: str
    data: Annotated[str, Field(description="its files, below `root`; none where a run has its own")] = ""
    languages: Annotated[tuple[str, ...], Field(description="those to score; all that are found if none")] = ()
    resources: Annotated[Resources | None, Field(description="the study's if null")] = None

    @model_validator(mode="after")
    def _is_known(self) -> EvaluationConfig:
        load_task(self.task)
        _check_task(self.task, TASKS.keys() - TUNED_TASKS.keys())
        return self


class Search(Frozen):
    """Every combination of the settings that are lists, or some of them, the same for every encoder."""

    num_samples: Annotated[Positive | None, Field(description="combinations to draw at random; all if null")] = None
    seed: Annotated[Int, Field(ge=0, description="of the draw")] = 0
    asha: Annotated[
        dict[str, Any] | None,
        Field(
            description="options of Ray Tune's ASHAScheduler: poor trials of the first seeds stop early, and other "
            "seeds repeat the chosen setting; none stops if null"
        ),
    ] = None

    def settings_to_try(self, settings: Frozen) -> list[dict[str, Any]]:
        """Values for fields of `FineTuning`, a dict a combination, each once; one value alone is never searched."""
        among = {name: values for name, values in settings if values is not None}
        if self.num_samples is None:
            return [dict(zip(among, values, strict=True)) for values in itertools.product(*among.values())]
        rng = random.Random(f"study/{self.seed}")
        drawn = [
            {name: values[0] if len(values) == 1 else rng.choice(values) for name, values in among.items()}
            for _ in range(self.num_samples)
        ]
        return [setting for number, setting in enumerate(drawn) if setting not in drawn[:number]]


class RatesConfig(Frozen):
    """Learning rates; each recipe takes the best on development languages, before a test score is read."""

    learning_rate: Annotated[tuple[Annotated[Float, Field(gt=0)], ...], Field(min_length=2)]
    evaluation: Annotated[EvaluationConfig, Field(description="in development languages, which nothing else scores")]
    metric: Annotated[str, Field(description="of the evaluation, whose mean over these languages decides")]
    seed: Annotated[Int, Field(description="of pretraining, with which rates are tried")] = 0
    chosen: Annotated[
        str, Field(description="rates.json of this study on another machine: its rates are taken, none are tried")
    ] = ""

    @model_validator(mode="after")
    def _is_apart(self) -> RatesConfig:
        _check_once("learning_rate", self.learning_rate)
        if not self.evaluation.languages:
            raise ValueError("evaluation.languages is needed: the languages that rates are chosen by")
        return self


class Spread(Frozen):
    """Standard deviations of a difference of two encoders, in points."""

    languages: Annotated[Float, Field(ge=0)] = 2.0
    seeds: Annotated[Float, Field(ge=0)] = 1.0


class StudyConfig(Frozen):
    """A study: every encoder, with every seed, fine-tuned and evaluated on everything."""

    name: Annotated[str, Field(pattern=r"^[\w.-]+$", description="its folder; the file's name if not given")]
    notes: str = ""
    command: Annotated[str, Field(description="that runs it again; of a study in the package")] = ""
    scale: Annotated[str, Field(description="of a study that there is at several: tiny, small or paper")] = ""
    root: Annotated[
        str | None,
        Field(description="where paths of `data` start; each recipe's `data.root` if null, `demo` is the world"),
    ] = None
    data_from: Annotated[str, Field(description="the command that makes its data, said where they are missing")] = ""
    encoders: Annotated[tuple[EncoderConfig, ...], Field(min_length=1)]
    encoder: Annotated[
        str, Field(description="folder or hub id for which `{encoder}` stands in models and settings: --encoder")
    ] = ""
    values: Annotated[
        dict[str, str | Int | Float],
        Field(description="what a name in braces stands for in recipes, commands, models and settings: `{queue}`"),
    ] = Field(default_factory=dict)
    seeds: Annotated[tuple[Int, ...], Field(min_length=1, description="of pretraining")] = (0,)
    rates: Annotated[
        RatesConfig | None, Field(description="learning rates to choose from for each recipe; their own if null")
    ] = None
    settings: Annotated[tuple[str, ...], Field(description="of every recipe, as given to --set")] = ()
    evaluations: tuple[EvaluationConfig, ...] = ()
    finetunings: tuple[FineTuningConfig, ...] = ()
    search: Search = Search()
    baseline: Annotated[str | None, Field(description="label that the others are compared with; the first if null")] = (
        None
    )
    spread: Annotated[
        Spread, Field(description="how differences vary, from studies like it: what --plan can say of its power")
    ] = Spread()
    resources: Resources = Resources()
    keep_models: Annotated[bool, Field(description="of the chosen fine-tunings; the others' are removed")] = False
    mlflow: Annotated[Uri, Field(description="as `track.mlflow` of a recipe: sqlite, off or a URI")] = "sqlite"
    experiment: Annotated[str, Field(description="of MLflow; the study's name if empty")] = ""

    @model_validator(mode="after")
    def _is_one_study(self) -> StudyConfig:
        of_all_languages = {encoder.shown for encoder in self.encoders if not encoder.languages}
        _check_once("encoders", [encoder.shown for encoder in self.encoders if encoder.shown in of_all_languages])
        _check_once("seeds", self.seeds)
        for encoder in self.encoders:
            if encoder.command and "{seed}" not in encoder.command and len(encoder.seeds or self.seeds) > 1:
                raise ValueError(f"the command of '{encoder.shown}' has no {{seed}}: give it one, or seeds: [0]")
        _check_once("finetunings", [f"{entry.task} ({entry.train_language})" for entry in self.finetunings])
        _check_once("evaluations", [f"{entry.task} {entry.data}".strip() for entry in self.evaluations])
        if self.baseline is not None and self.baseline not in self.labels:
            raise ValueError(
                f"baseline '{self.baseline}' is no label of an encoder.{suggest(self.baseline, self.labels)} "
                f"Labels are {', '.join(self.labels)}"
            )
        texts = [text for entry in self.encoders for text in (entry.recipe, entry.model, *entry.settings)]
        commands = re.sub(r"\{(out|seed)\}", "", " ".join(entry.command for entry in self.encoders))
        for name in re.findall(r"\{(\w+)\}", " ".join((*texts, *self.settings, commands))):
            raise ValueError(f"encoders have {{{name}}}, which nothing stands for; `values` may have {name}: VALUE")
        dev = set(self.rates.evaluation.languages) if self.rates else set()
        for entry in (*self.evaluations, *self.finetunings) if dev else ():
            if not entry.languages or dev & set(entry.languages):
                raise ValueError(
                    f"rates are chosen in {', '.join(sorted(dev))}, so {entry.task} needs `languages` without them"
                )
        for entry in self.finetunings:
            for setting in self.search.settings_to_try(entry.settings):
                FineTuning(**setting)
        return self

    @property
    def labels(self) -> list[str]:
        """The columns of the comparison, in their order."""
        kinds = dict.fromkeys(self._kinds) or {"english": None}
        encoders = dict.fromkeys(encoder.shown for encoder in self.encoders)
        return [self.label_of(encoder, kind) for encoder in encoders for kind in kinds]

    def label_of(self, encoder: str, kind: str) -> str:
        """The column of an encoder that was fine-tuned in this way; English, or the only way, has no name."""
        return encoder if kind == "english" or len(set(self._kinds)) <= 1 else f"{encoder} {kind}"

    @property
    def _kinds(self) -> list[str]:
        return [training.name for finetuning in self.finetunings for training in finetuning.training]


def load_study(name: str, settings: Sequence[str] = (), encoder: str = "") -> StudyConfig:
    """A study by its name in `recipes/studies/` or by path.

    Args:
        name: of the package, or a YAML file; of one that there is at several scales with its scale: `weam/tiny`.
        settings: `key=value`: a key of the study is set in it, any other is given to every recipe.
        encoder: folder or hub id in place of the study's own `encoder`; the study is then named after both.

    Raises:
        ConfigError: there is no such study, or it is not one; names file, key and nearest valid key.
    """
    path = find_study(name)
    tree, origins = _read_study(path, ())
    for setting in settings:
        if setting.partition("=")[0].split(".")[0] in StudyConfig.model_fields:
            apply_setting(tree, origins, setting, StudyConfig)
        else:
            tree["settings"] = [*tree.get("settings", []), setting]
    is_scaled = path.parent.parent == STUDIES
    names = {"name": f"{path.parent.name}-{path.stem}", "scale": path.stem} if is_scaled else {"name": path.stem}
    words = [path.parent.name, "--scale", path.stem] if is_scaled else [path.stem]
    words += ["--encoder", encoder] if encoder else []
    words += [word for setting in settings for word in ("--set", setting)]
    command = shlex.join(["xalign", "study", *words]) if path.is_relative_to(STUDIES) else ""
    if encoder and "encoder" not in tree:
        raise ConfigError(f"--encoder: the study {name} begins from no encoder; `encoder` in its file names one.")
    if encoder:
        tree["encoder"] = encoder
        folder = Path(encoder.rstrip("/"))
        named = folder.parent.name if folder.name == EXPORT else folder.name
        names["name"] += "-" + re.sub(r"[^\w.-]", "-", named)
    values = tree["values"] if isinstance(tree.get("values"), Mapping) else {}
    tree = _filled(tree, {**values, "encoder": tree.get("encoder", "")})
    for key in ("encoders", "evaluations", "finetunings"):
        if isinstance(items := tree.get(key), list):
            tree[key] = [arm for item in items for arm in _arms(item)]
    return parse_study(names | tree | {"command": command}, origins, str(path))


def _read_study(path: Path, extended_by: tuple[Path, ...]) -> tuple[dict[str, Any], dict[str, str]]:
    """The keys of a study over the keys of the study that it extends, and the file of each inherited key."""
    if path in extended_by:
        raise ConfigError(f"{path} extends itself: {' -> '.join(file.name for file in (*extended_by, path))}.")
    tree = read_mapping(path)
    if (extended := tree.pop("extends", None)) is None:
        return tree, {}
    below, origins = _read_study(find_study(str(extended)), (*extended_by, path))
    inherited = {key: str(find_study(str(extended))) for key in below}
    return below | tree, {key: file for key, file in (inherited | origins).items() if key not in tree}


def _filled(tree: Any, values: Mapping[str, Any]) -> Any:
    """A tree in whose texts each value stands for its name in braces."""
    if isinstance(tree, Mapping):
        return {key: _filled(value, values) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_filled(value, values) for value in tree]
    if isinstance(tree, str):
        for name, value in values.items():
            tree = tree.replace(f"{{{name}}}", str(value))
    return tree


def _arms(item: Any) -> list[Any]:
    """An item of a list; of one with `over`, an item for each combination of its values, as `_filled` with them."""
    if not isinstance(item, Mapping) or not isinstance(over := item.get("over"), Mapping):
        return [item]
    lists = [values if isinstance(values, list) else [values] for values in over.values()]
    fixed = {key: value for key, value in item.items() if key != "over"}
    return [_filled(fixed, dict(zip(over, values, strict=True))) for values in itertools.product(*lists)]


def parse_study(tree: dict[str, Any], origins: dict[str, str], source: str) -> StudyConfig:
    """The study of a tree of keys.

    Args:
        tree: as YAML has it.
        origins: where keys come from, if not from `source`.
        source: a file or the like, for messages.

    Raises:
        ConfigError: as `load_study`.
    """
    try:
        return StudyConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(explain_validation(error, StudyConfig, origins, default_origin=source)) from None


def check_options(task: str, options: Mapping[str, Any]) -> None:
    """Refuses options of `xalign tune --set` under their own names, before a study is made of them.

    Raises:
        ConfigError: names the option and the nearest that is known.
    """
    try:
        options_given = Options.model_validate(resolve_settings(options, task))
        _check_choice(task, options_given)
    except ValidationError as error:
        raise ConfigError(explain_validation(error, Options, {}, default_origin="--set")) from None
    except ValueError as error:
        raise ConfigError(f"--set: {error}.") from None


def _check_choice(task: str, settings: Any) -> None:
    """Refuses settings by which no epoch of the task can be chosen."""
    metrics = [metric.name for metric in TUNED_TASKS[task].metrics]
    for metric in filter(None, settings.metric_for_best_model or ()):
        if metric not in metrics:
            raise ValueError(
                f"metric_for_best_model '{metric}' is none of {task}.{suggest(metric, metrics)} Known: "
                f"{', '.join(metrics)}"
            )
    if len(settings.metric_for_best_model or ()) > 1:
        raise ValueError("metric_for_best_model takes one value: development scores of two cannot be compared")


def _check_task(task: str, known: Iterable[str]) -> None:
    if task not in (names := sorted(known)):
        raise ValueError(f"task '{task}' is not known here.{suggest(task, names)} Known: {', '.join(names)}")


def _check_once(what: str, values: Sequence[Any]) -> None:
    if duplicates := sorted({str(value) for value in values if list(values).count(value) > 1}):
        raise ValueError(f"{what} has {', '.join(duplicates)} twice; remove one, or give it another name")
