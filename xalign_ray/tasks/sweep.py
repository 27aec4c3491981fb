"""A sweep of fine-tunings as it is declared: encoders, tasks, what is searched, seeds; read from YAML and checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, ValidationError, model_validator

from xalign_ray.config.declared import read_declared
from xalign_ray.config.explain import explain_validation, suggest
from xalign_ray.config.fields import Float, Frozen, Int, Positive, Uri
from xalign_ray.config.load import RECIPES, apply_setting
from xalign_ray.errors import ConfigError
from xalign_ray.finetune.training_set import Training
from xalign_ray.tasks.registry import TASKS, TUNED_TASKS

SWEEPS = RECIPES / "tuning"

Rate = Annotated[Float, Field(gt=0)]
Rates = Annotated[tuple[Rate, ...], Field(min_length=1)]
Counts = Annotated[tuple[Positive, ...], Field(min_length=1)]


class SweptEncoder(Frozen):
    """An encoder, by its folder or by the recipe that made it."""

    model: Annotated[str, Field(description="a run, an exported folder or a hub id")] = ""
    recipe: Annotated[str, Field(description="the one finished run of this recipe in the output folder")] = ""
    label: Annotated[str, Field(description="how tables call it; model or recipe if empty")] = ""

    @property
    def shown(self) -> str:
        """The label in tables."""
        return self.label or self.recipe or self.model

    @model_validator(mode="after")
    def _is_one(self) -> SweptEncoder:
        if bool(self.model) == bool(self.recipe):
            raise ValueError("an encoder is given either by model or by recipe")
        return self


class SweptTraining(Frozen):
    """What is fine-tuned on; paths of dictionaries are below `root`."""

    kind: str = "english"
    languages: tuple[str, ...] = ()
    dictionaries: tuple[str, ...] = ()
    share: float = 0.5

    @model_validator(mode="after")
    def _means_something(self) -> SweptTraining:
        try:
            Training(**self.model_dump())
        except ConfigError as error:
            raise ValueError(str(error).rstrip(".")) from None
        return self


class TaskOptions(Frozen):
    """Settings that a task has in all its trials, whatever is searched."""

    learning_rate: Rate | None = None
    num_train_epochs: Positive | None = None
    train_batch_size: Positive | None = None
    early_stopping_patience: Positive | None = None
    max_train_samples: Positive | None = None


class SweptTask(Frozen):
    """A fine-tuned task."""

    task: str
    data: Annotated[tuple[str, ...], Field(min_length=1, description="folders of its files, below `root`")]
    languages: Annotated[tuple[str, ...], Field(description="those to test; all that are found if none")] = ()
    train_language: str = "en"
    options: TaskOptions = TaskOptions()
    training: Annotated[tuple[SweptTraining, ...], Field(min_length=1)] = (SweptTraining(),)

    @model_validator(mode="after")
    def _is_known(self) -> SweptTask:
        _check_task(self.task, TUNED_TASKS)
        _check_once("training", [training.kind for training in self.training])
        return self


class SweptEvaluation(Frozen):
    """An evaluation without training, once for each encoder."""

    task: str
    data: Annotated[str, Field(description="its files, below `root`; none where a run has its own")] = ""
    languages: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _is_known(self) -> SweptEvaluation:
        _check_task(self.task, TASKS.keys() - TUNED_TASKS.keys())
        return self


@dataclass(frozen=True, slots=True)
class LogUniform:
    """Numbers between two ends, drawn evenly on a logarithmic scale."""

    log_uniform: tuple[float, float]


def _list_or_range(value: Any) -> tuple[float, ...] | LogUniform | None:
    """Checked by hand, for pydantic would name both members of the union whichever was meant."""
    if value is None or isinstance(value, LogUniform):
        return value
    is_range = isinstance(value, dict) and value.keys() == {"log_uniform"}
    numbers = value["log_uniform"] if is_range else value
    if not isinstance(numbers, list | tuple) or not numbers or not all(_is_rate(number) for number in numbers):
        raise ValueError("write a list of numbers above 0, or {log_uniform: [lowest, highest]}")
    if not is_range:
        return tuple(map(float, numbers))
    if len(numbers) != 2 or numbers[0] >= numbers[1]:
        raise ValueError("log_uniform is [lowest, highest]")
    return LogUniform((float(numbers[0]), float(numbers[1])))


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


class GridSearch(Frozen):
    """Every combination; what has no list is as the task's options or the defaults say."""

    kind: Literal["grid"] = "grid"
    learning_rate: Rates | None = None
    num_train_epochs: Counts | None = None
    train_batch_size: Counts | None = None


class RandomSearch(Frozen):
    """Combinations drawn at random, the same ones for every encoder and task."""

    kind: Literal["random"] = "random"
    num_samples: Positive
    seed: Annotated[Int, Field(ge=0, description="of the draw")] = 0
    learning_rate: Annotated[Any, PlainValidator(_list_or_range)] = None
    num_train_epochs: Counts | None = None
    train_batch_size: Counts | None = None


class AshaSearch(RandomSearch):
    """Random search whose poor trials are stopped early, under the first seed; other seeds repeat what it chose."""

    kind: Literal["asha"] = "asha"  # type: ignore[assignment]
    grace_epochs: Annotated[Positive, Field(description="no trial is stopped before")] = 1
    reduction_factor: Annotated[Float, Field(gt=1, description="one in so many goes on")] = 3.0


Search = Annotated[GridSearch | RandomSearch | AshaSearch, Field(discriminator="kind")]


class TrialResources(Frozen):
    """What a trial holds on the cluster; whole or fractions."""

    cpus_per_trial: Annotated[Float, Field(gt=0)] = 1.0
    gpus_per_trial: Annotated[Float, Field(ge=0)] = 0.0


class SweepConfig(Frozen):
    """A sweep: every encoder on every task with every setting and seed."""

    name: Annotated[str, Field(pattern=r"^[\w.-]+$", description="its folder; the file's name if not given")]
    notes: str = ""
    root: Annotated[str, Field(description="where paths of `data` start; `demo` is the embedded world")] = "data"
    encoders: Annotated[tuple[SweptEncoder, ...], Field(min_length=1)]
    tasks: Annotated[tuple[SweptTask, ...], Field(min_length=1)]
    search: Search = GridSearch()
    seeds: Annotated[tuple[Int, ...], Field(min_length=1)] = (0,)
    evaluate: tuple[SweptEvaluation, ...] = ()
    baseline: Annotated[str | None, Field(description="label that the others are compared with; the first if null")] = (
        None
    )
    resources: TrialResources = TrialResources()
    mlflow: Annotated[Uri, Field(description="as `track.mlflow` of a recipe: sqlite, off or a URI")] = "sqlite"
    experiment: Annotated[str, Field(description="of MLflow; the sweep's name if empty")] = ""

    @model_validator(mode="after")
    def _is_one_sweep(self) -> SweepConfig:
        _check_once("encoders", [encoder.shown for encoder in self.encoders])
        _check_once("tasks", [f"{task.task} ({task.train_language})" for task in self.tasks])
        _check_once("seeds", self.seeds)
        _check_once("evaluate", [evaluation.task for evaluation in self.evaluate])
        labels = self.labels
        if self.baseline is not None and self.baseline not in labels:
            raise ValueError(
                f"baseline '{self.baseline}' is no label of an encoder.{suggest(self.baseline, labels)} "
                f"Labels are {', '.join(labels)}"
            )
        return self

    @property
    def labels(self) -> list[str]:
        """The columns of the comparison, in their order."""
        kinds = dict.fromkeys(training.kind for task in self.tasks for training in task.training)
        return [self.label_of(encoder.shown, kind) for encoder in self.encoders for kind in kinds]

    def label_of(self, encoder: str, kind: str) -> str:
        """The column of an encoder that was fine-tuned in this way; English, or the only way, has no name."""
        kinds = {training.kind for task in self.tasks for training in task.training}
        return encoder if kind == "english" or len(kinds) == 1 else f"{encoder} {kind}"


def load_sweep(name: str, settings: Sequence[str] = ()) -> SweepConfig:
    """A sweep by its name in `recipes/tuning/` or by path, with `key=value` settings over it.

    Raises:
        ConfigError: there is no such sweep, or it is not one; names file, key and nearest valid key.
    """
    path, tree = read_declared("sweep", name, SWEEPS, " One model is tuned with --task and --data.")
    origins: dict[str, str] = {}
    for setting in settings:
        apply_setting(tree, origins, setting)
    try:
        return SweepConfig.model_validate({"name": path.stem} | tree)
    except ValidationError as error:
        raise ConfigError(explain_validation(error, SweepConfig, origins, default_origin=str(path))) from None


def _check_task(task: str, known: Iterable[str]) -> None:
    if task not in (names := sorted(known)):
        raise ValueError(f"task '{task}' is not known here.{suggest(task, names)} Known: {', '.join(names)}")


def _check_once(what: str, values: Sequence[Any]) -> None:
    if repeated := sorted({str(value) for value in values if list(values).count(value) > 1}):
        raise ValueError(f"{what} has {', '.join(repeated)} twice; remove one, or give it another name")
