"""What a run folder says, in MLflow's own terms: parameters, the places of points, the data set, the held-out table."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag

from xalign_ray.track.events import Event, stream_events
from xalign_ray.work.artifacts import hash_value, read_manifest

MAX_POINTS = 2000  # points a metric: more make MLflow's pages hang (mlflow#1571, mlflow#9779)
_LENGTH = 250  # characters of a parameter's key or value
_NAMED = 8  # languages in the name of a data set
_OWN = "own"  # the scale of a recipe that is a user's file; that of a released one is its folder


class Thinning:
    """Gives every step its place among at most MAX_POINTS; only the first point of a place is kept.

    Places are counted back from the last step, so the last step always is the first of its own.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._stride = max(1, math.ceil(steps / (MAX_POINTS - 1)))

    def place(self, step: int) -> int:
        """Number of the step's place; grows with the step."""
        return (step - self._steps) // self._stride


def flatten(tree: Any, prefix: str = "") -> dict[str, str]:
    """A recipe's leaves as MLflow parameters: dotted keys, values of at most 250 characters.

    A list of plain values is one parameter; items of a list of trees go by number.
    """
    trees = isinstance(tree, list) and any(isinstance(item, (dict, list)) for item in tree)
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if trees else None
    if not items:
        key = re.sub(r"[^\w./: -]", "_", prefix, flags=re.ASCII)[:_LENGTH]
        value = tree if isinstance(tree, str) else json.dumps(tree, ensure_ascii=False)
        return {key: value if len(value) <= _LENGTH else value[: _LENGTH - 3] + "..."} if prefix else {}
    leaves: dict[str, str] = {}
    for name, child in items:
        leaves |= flatten(child, f"{prefix}.{name}" if prefix else str(name))
    return leaves


def found_by(start: Event, recipe: Mapping[str, Any]) -> dict[str, str]:
    """What runs of all kinds are searched by: `method`, `scale`, `objectives`, `languages`; those that are known.

    Args:
        recipe: as the run folder holds it, empty of a cell of a study.
    """
    params = start.get("params", {})
    name = Path(params.get("recipe") or start.get("recipe", ""))
    found = {
        "method": params.get("objective"),
        "scale": _OWN if name.suffix else str(name.parent),
        "objectives": ",".join(one["kind"] for one in recipe.get("objectives", ())),
        **start.get("labels", {}),
    }
    return {key: value[:_LENGTH] for key, value in found.items() if value and value != "."}


def origin_tags(origin: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, str]:
    """Commit, user, host and versions under MLflow's own names where it has one, and the recipe's notes."""
    tags = {
        "mlflow.source.git.commit": origin.get("commit"),
        "mlflow.user": origin.get("user"),
        "mlflow.note.content": recipe.get("notes"),
        "xalign.host": origin.get("host"),
        "xalign.version.python": origin.get("python"),
        **{f"xalign.version.{package}": number for package, number in origin.get("versions", {}).items()},
    }
    return {key: value for key, value in tags.items() if value}


def dataset_input(start: Event) -> DatasetInput | None:
    """The prepared data that a start event names (`data`: its folder) as a data set input."""
    if not (data := start.get("data")):
        return None
    manifest = read_manifest(Path(data)) or {}
    digest = str(start.get("data_fingerprint") or hash_value(manifest))[:36]
    languages = manifest.get("languages", [])
    rows = sum(pool.get("rows", 0) for pool in manifest.get("pools", {}).values())
    size = {"rows": rows, "tokens": manifest.get("counts", {}).get("tokens", 0)}
    name = "-".join(languages) if 0 < len(languages) <= _NAMED else f"{len(languages)} languages"
    source = json.dumps({"uri": data})
    dataset = Dataset(name, digest, "local", source, profile=json.dumps({"languages": ", ".join(languages), **size}))
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])


# Events with a value for each language, the files that they become in MLflow, and what the value is.
LANGUAGE_TABLES = {
    "held_out": ("held_out_languages.csv", "loss"),
    "retrieval": ("retrieval_languages.csv", "accuracy"),
}


def language_tables(path: Path) -> dict[str, str]:
    """The values by step and language of the events in LANGUAGE_TABLES, as CSV by file name; none where none occurred.

    Tables, because a key a language would be too many charts.
    """
    lines: dict[str, list[str]] = {}
    for event, survives in stream_events(path):
        if survives and event["event"] in LANGUAGE_TABLES:
            name, value = LANGUAGE_TABLES[event["event"]]
            table = lines.setdefault(name, [f"step,language,{value}"])
            found = event.get("languages", {}).items()
            table += [f"{event['step']},{language},{one}" for language, one in found if one is not None]
    return {name: "\n".join([*table, ""]) for name, table in lines.items() if len(table) > 1}


def milliseconds(event: Event) -> int:
    """When an event was written, in MLflow's unit."""
    return int(event["time"] * 1000)
