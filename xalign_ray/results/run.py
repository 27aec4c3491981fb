"""The runs of a report: what is read of a folder, and the labels that tell which of them are one column."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xalign_ray.config.explain import flatten
from xalign_ray.config.load import load_recipe
from xalign_ray.config.saved import read_saved
from xalign_ray.config.schema import RUN_OF
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.results.log import Log, read_log
from xalign_ray.tasks.scores import Score, read_scores
from xalign_ray.track.events import check_whole
from xalign_ray.work.artifacts import hash_value, read_manifest, whole_manifest
from xalign_ray.work.mirror import local_folder
from xalign_ray.work.run_folder import RunFolder

# Not what a recipe is about: who ran it, where, on how many machines, and the seed that columns group over.
_ASIDE = ("recipe", "fingerprint", "notes", "allow", "seed", "output", "parallel", "checkpoint", "track")
_MAX_IN_LABEL = 3
_RUN_EXPORT = re.compile(r"([^/]+)-[0-9a-f]{8}/export/?$")  # as a run folder is named


@dataclass(frozen=True)
class Run:
    """One run folder, or a folder that holds only scores of an encoder made elsewhere.

    Attributes:
        folder: where it is.
        config: the resolved recipe with its `recipe` and `fingerprint`; empty for an encoder made elsewhere.
        log: its history; empty for an encoder made elsewhere.
        scores: all scores of all evaluations.
        data: manifest of the prepared data, None where its folder is gone.
        label: of its column; empty before `label_runs`, unless a study gives one.
        study: what study.json says of the study that it is a cell of, and its `choices`.
    """

    folder: Path
    config: Mapping[str, Any]
    log: Log
    scores: tuple[Score, ...]
    data: Mapping[str, Any] | None = None
    label: str = ""
    study: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.folder.resolve().name

    @property
    def recipe(self) -> str:
        """The recipe's name, or the folder's where there was no recipe."""
        return self.config.get("recipe") or self.name

    @property
    def seed(self) -> int | None:
        """Seed of pretraining."""
        return self.config.get("seed")

    @property
    def settings(self) -> dict[str, Any]:
        """What makes its result what it is, the seed apart, as dotted keys."""
        return _settings(self.config)

    @property
    def scale(self) -> str:
        """That of its study, else the folder of its recipe, such as papers or tiny; empty where neither is known."""
        of_study = (self.study or {}).get("scale")
        name = Path(self.config.get("recipe") or "")
        return of_study or ("own" if name.suffix else "" if name.parent == Path() else str(name.parent))

    @property
    def finished(self) -> bool:
        """Whether the last step was reached; an encoder made elsewhere is taken as it is."""
        return not self.log.started or self.log.end is not None

    @property
    def on_demo(self) -> bool:
        """Whether the data is the embedded world, which is no source of claims."""
        root = self.config.get("data", {}).get("root")
        return root == "demo" or bool(root and (whole_manifest(Path(root)) or {}).get("kind") == "demo")

    def sources(self, key: str) -> Sequence[Mapping[str, Any]]:
        """The recipe's `corpora`, `parallel`, `tests` or `dictionaries`."""
        return self.config.get("data", {}).get(key, [])


def read_run(folder: Path) -> Run:
    """Reads a run folder, finished or not, or a folder with scores.json alone.

    Raises:
        DataError: there is neither an event log nor a score in it, or a file of it is damaged.
    """
    path = RunFolder(folder).events
    check_whole(path)
    scores = tuple(score for file in RunFolder(folder).score_files for score in read_scores(file))
    if not path.is_file() and not scores:
        raise DataError(
            f"{folder} is not a run: it holds neither {path.name} nor a scores.json. Give run folders, such as those "
            "below runs/."
        )
    log = read_log(path) if path.is_file() else Log()
    made_of = next((start["data"] for start in reversed(log.starts) if start.get("data")), None)
    downloaded = RunFolder(folder).data
    data = downloaded if downloaded.is_dir() else made_of and local_folder(made_of)
    return Run(folder, read_saved(folder), log, scores, read_manifest(data) if data else None)


def label_runs(runs: Sequence[Run]) -> list[Run]:
    """The runs with labels, those of one label after each other, in the order in which their first ones were given.

    Without a label of a study, runs belong together if their recipes are equal but for the seed; a second run of the
    same recipe and seed gets a label of its own, so that a repetition is never counted as a seed. Runs of one recipe
    name are told apart by what they set otherwise than the recipe.

    Raises:
        ConfigError: there is none.
    """
    if not runs:
        raise ConfigError("A report needs at least one run.")
    groups: dict[tuple[Any, ...], list[Run]] = {}
    seen: Counter[tuple[Any, ...]] = Counter()
    for run in runs:
        recipe = (run.recipe, hash_value(run.settings))
        place = (run.label,) if run.label else (*recipe, seen[(*recipe, run.seed)])
        seen[(*recipe, run.seed)] += not run.label
        groups.setdefault(place, []).append(run)
    labels = _labels([group[0] for group in groups.values()])
    return [replace(run, label=label) for label, group in zip(labels, groups.values(), strict=True) for run in group]


def columns_of(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each label."""
    columns: dict[str, list[Run]] = {}
    for run in runs:
        columns.setdefault(run.label, []).append(run)
    return columns


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    settings = flatten({key: value for key, value in config.items() if key not in _ASIDE})
    settings.pop("train.per_device_batch_size", None)
    # Where a recipe starts from as it said it, not as it was settled: every seed continues a folder of its own.
    start = str(settings.get("model.init_from") or "")
    if start.startswith(RUN_OF):
        settings["model.init_from"] = start.replace("/", "-")
    elif found := _RUN_EXPORT.search(start):
        settings["model.init_from"] = f"{RUN_OF}{found[1]}"
        if settings.get("data.tokenizer.kind") == "folder" and settings.get("data.tokenizer.path") == start:
            settings |= {"data.tokenizer.kind": "start", "data.tokenizer.path": None}
    return settings


def _labels(firsts: Sequence[Run]) -> list[str]:
    """A label for each column, by its first run."""
    names = Counter(run.recipe for run in firsts if not run.label)
    labels = [run.label or (_own_label(run) if names[run.recipe] > 1 and run.config else run.recipe) for run in firsts]
    count = Counter(labels)
    return [
        f"{run.recipe} ({run.name})" if count[label] > 1 else label for label, run in zip(labels, firsts, strict=True)
    ]


def _own_label(run: Run) -> str:
    """The recipe's name with what this run set otherwise; the plain recipe keeps its plain name."""
    try:
        plain = _settings(load_recipe(run.recipe).config.model_dump(mode="json"))
    except ConfigError:
        return run.recipe  # a recipe that was given by path
    changed = [f"{key.rsplit('.', 1)[-1]}={value}" for key, value in run.settings.items() if plain.get(key) != value]
    return f"{run.recipe} ({', '.join(changed)})" if 0 < len(changed) <= _MAX_IN_LABEL else run.recipe
