"""Groups runs into the columns of a comparison: runs of one recipe that differ only in their seed stand together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xalign_ray.artifacts import hash_value
from xalign_ray.config.explain import flatten
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import RUN_OF
from xalign_ray.errors import ConfigError
from xalign_ray.report.run import Run

# Not what a recipe is about: who ran it, where, on how many machines, and the seed that columns group over.
_ASIDE = ("recipe", "fingerprint", "notes", "seed", "output", "parallel", "checkpoint", "track")
_MAX_IN_LABEL = 3
_RUN_EXPORT = re.compile(r"([^/]+)-[0-9a-f]{8}/export/?$")  # as a run folder is named


@dataclass(frozen=True)
class Column:
    """One recipe (or an encoder made elsewhere) with all its seeds."""

    label: str
    runs: tuple[Run, ...]

    @property
    def settings(self) -> dict[str, Any]:
        """What the recipe says, as dotted keys."""
        return recipe_settings(self.runs[0].config)


def recipe_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a resolved recipe that make its result what it is, the seed apart, as dotted keys."""
    settings = flatten({key: value for key, value in config.items() if key not in _ASIDE})
    settings.pop("train.per_device_batch_size", None)
    return settings | _start(settings)


def _start(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Where a recipe starts from as it said it, not as it was settled: every seed continues a folder of its own."""
    start = str(settings.get("model.init_from") or "")
    if start.startswith(RUN_OF):
        return {"model.init_from": start.replace("/", "-")}
    if not (found := _RUN_EXPORT.search(start)):
        return {}
    own = settings.get("data.tokenizer.kind") == "folder" and settings.get("data.tokenizer.path") == start
    tokenizer = {"data.tokenizer.kind": "start", "data.tokenizer.path": None} if own else {}
    return {"model.init_from": f"{RUN_OF}{found[1]}"} | tokenizer


def group_runs(runs: Sequence[Run]) -> list[Column]:
    """The columns in the order in which their first runs were given.

    Runs of one label are one column. Without labels, runs belong together if their recipes are equal but for the seed;
    a second run of the same recipe and seed is a column of its own, so that a repetition is never counted as a seed.
    Columns of one recipe name are told apart by what they set otherwise than the recipe.
    """
    groups: dict[tuple[Any, ...], list[Run]] = {}
    seen: Counter[tuple[Any, ...]] = Counter()
    for run in runs:
        key = (run.recipe, hash_value(recipe_settings(run.config)))
        place = (run.label,) if run.label else (*key, seen[(*key, run.seed)])
        seen[(*key, run.seed)] += not run.label
        groups.setdefault(place, []).append(run)
    found = list(groups.values())
    return [Column(label, tuple(group)) for label, group in zip(_label(found), found, strict=True)]


def differing_settings(columns: Sequence[Column]) -> list[tuple[str, list[Any]]]:
    """The dotted keys in which recipes differ, each with its value in every column, None where a column has none."""
    known = [column.settings for column in columns]
    keys = dict.fromkeys(key for settings in known for key in settings)
    rows = [(key, [settings.get(key) for settings in known]) for key in sorted(keys)]
    return [(key, values) for key, values in rows if any(value != values[0] for value in values)]


def _label(groups: Sequence[Sequence[Run]]) -> list[str]:
    names = Counter(group[0].recipe for group in groups if not group[0].label)
    labels = [
        run.label or (_own_label(run) if names[run.recipe] > 1 and run.config else run.recipe)
        for run in (group[0] for group in groups)
    ]
    not_unique = {label for label, count in Counter(labels).items() if count > 1}
    return [
        f"{group[0].recipe} ({group[0].name})" if label in not_unique else label
        for label, group in zip(labels, groups, strict=True)
    ]


def _own_label(run: Run) -> str:
    """The recipe's name with what this run set otherwise; the plain recipe keeps its plain name."""
    try:
        plain = recipe_settings(load_recipe(run.recipe).config.model_dump(mode="json"))
    except ConfigError:
        return run.recipe  # a recipe that was given by path
    own = recipe_settings(run.config)
    changed = [f"{key.rsplit('.', 1)[-1]}={value}" for key, value in own.items() if plain.get(key) != value]
    if len(changed) > _MAX_IN_LABEL:
        return run.recipe
    return f"{run.recipe} ({', '.join(changed)})" if changed else run.recipe
