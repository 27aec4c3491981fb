"""The trials of a sweep, one by one, and the file that they are written to before the first of them starts."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xalign_ray.artifacts import write_json
from xalign_ray.errors import DataError
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.training_set import Training
from xalign_ray.finetune.tune import check_files
from xalign_ray.tasks.grid import Trial, trial_of
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.sweep import (
    AshaSearch,
    GridSearch,
    LogUniform,
    RandomSearch,
    SweepConfig,
    SweptTask,
    SweptTraining,
)

SWEEP = "sweep.json"
_SEARCHED = ("learning_rate", "num_train_epochs", "train_batch_size")


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """A trial, and what it stands for.

    Attributes:
        encoder: label of the encoder.
        label: its column in the comparison.
        repeats: it is run only if its setting was chosen, under another seed than that of the search.
    """

    encoder: str
    label: str
    trial: Trial
    repeats: bool = False

    @property
    def search(self) -> tuple[str, str, str, str]:
        """Encoder, task, language and kind of training: among trials of the same, one setting is chosen."""
        return self.encoder, self.trial.task, self.trial.train_language, self.trial.training.kind

    @property
    def setting(self) -> dict[str, Any]:
        """What is chosen: everything of the settings but the seed."""
        return {name: value for name, value in asdict(self.trial.settings).items() if name != "seed"}


def plan_trials(sweep: SweepConfig, encoders: Mapping[str, str], root: Path) -> list[PlannedTrial]:
    """All trials of a sweep, seed by seed, so that after the first seed all encoders can be compared.

    Args:
        sweep: as it was declared.
        encoders: folder or hub id of each encoder, by label.
        root: what relative paths start from.

    Raises:
        DataError: a task's files are missing.
    """
    root, draws = root.resolve(), settings_of(sweep.search)
    for task in sweep.tasks:
        check_task_files(task, root)
    one_each = itertools.product(sweep.seeds, sweep.tasks, sweep.encoders)
    planned = [
        PlannedTrial(
            encoder.shown,
            sweep.label_of(encoder.shown, training.kind),
            Trial(
                task=task.task,
                encoder=encoders[encoder.shown],
                data=_whole(root, task.data),
                settings=FineTuning(**{**draw, **task.options.model_dump(exclude_none=True), "seed": seed}),
                training=_training_of(training, root),
                languages=task.languages or None,
                train_language=task.train_language,
                device="cuda" if sweep.resources.gpus_per_trial else "cpu",
            ),
            repeats=isinstance(sweep.search, AshaSearch) and seed != sweep.seeds[0],
        )
        for seed, task, encoder in one_each
        for training in task.training
        for draw in draws
    ]
    return list(dict.fromkeys(planned))  # where a task's own option takes the place of what is searched


def settings_of(search: GridSearch | RandomSearch) -> list[dict[str, Any]]:
    """The combinations that a search tries."""
    values = {name: getattr(search, name) for name in _SEARCHED if getattr(search, name) is not None}
    if isinstance(search, GridSearch):
        return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
    rng = random.Random(f"sweep/{search.seed}")
    return [{name: _draw(rng, among) for name, among in values.items()} for _ in range(search.num_samples)]


def write_plan(folder: Path, sweep: SweepConfig, planned: Sequence[PlannedTrial]) -> None:
    """Writes sweep.json: from now on these are the trials, whatever becomes of the YAML."""
    trials = [asdict(one) | {"name": one.trial.name} for one in planned]
    write_json(folder / SWEEP, {"sweep": sweep.model_dump(mode="json"), "trials": trials})


def read_plan(folder: Path) -> tuple[SweepConfig, list[PlannedTrial]] | None:
    """What sweep.json says, None where there is none.

    Raises:
        DataError: it is damaged, or of another version of this program.
    """
    path = folder / SWEEP
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        planned = [
            PlannedTrial(one["encoder"], one["label"], trial_of(one["trial"]), one["repeats"])
            for one in value["trials"]
        ]
        if [one.trial.name for one in planned] == [one["name"] for one in value["trials"]]:
            return SweepConfig.model_validate(value["sweep"]), planned
    except (ValueError, KeyError, TypeError):
        pass
    raise DataError(
        f"{path} is not a sweep of this version. Give the sweep without --resume: its trials are planned again, and "
        "none that has ended is repeated."
    )


def whole_plan(folder: Path) -> tuple[SweepConfig, list[PlannedTrial]] | None:
    """`read_plan` for who plans anew: a damaged plan is as good as none."""
    try:
        return read_plan(folder)
    except DataError:
        return None


def check_task_files(task: SweptTask, root: Path) -> str:
    """Looks at names only, so that a wrong path costs moments, not the first trials; says which files are not read."""
    folders = [root / path for path in task.data]
    return check_files(TUNED_TASKS[task.task], folders, task.languages or None, task.train_language)


def _training_of(swept: SweptTraining, root: Path) -> Training:
    return Training(swept.kind, swept.languages, _whole(root, swept.dictionaries), swept.share)


def _whole(root: Path, paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(str((root / path).resolve()) for path in paths)


def _draw(rng: random.Random, among: Sequence[Any] | LogUniform) -> Any:
    if isinstance(among, LogUniform):
        low, high = map(math.log, among.log_uniform)
        return float(f"{math.exp(rng.uniform(low, high)):.3g}")
    return rng.choice(list(among))


def searches(planned: Sequence[PlannedTrial]) -> Iterator[tuple[tuple[str, str, str, str], list[PlannedTrial]]]:
    """The trials by what is chosen among them, in the order of the plan."""
    for search in dict.fromkeys(one.search for one in planned):
        yield search, [one for one in planned if one.search == search]
