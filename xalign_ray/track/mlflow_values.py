"""What a run folder says, in MLflow's own terms: parameters, the places of points, the data set, the held-out table."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag

from xalign_ray.artifacts import hash_value, read_manifest
from xalign_ray.track.events import Event, read_events

MAX_POINTS = 2000  # points a metric: more make MLflow's pages hang (mlflow#1571, mlflow#9779)
_LENGTH = 250  # characters of a parameter's key or value


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


def dataset_input(start: Event) -> DatasetInput | None:
    """The prepared data that a start event names (`data`: its folder) as a data set input."""
    if not (data := start.get("data")):
        return None
    manifest = read_manifest(Path(data)) or {}
    digest = str(start.get("data_fingerprint") or hash_value(manifest))[:36]
    counts = {key: value for key, value in manifest.items() if isinstance(value, (str, int, float))}
    source = json.dumps({"uri": data})
    dataset = Dataset(Path(data).name, digest, "local", source, profile=json.dumps(counts, sort_keys=True))
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])


def held_out_table(path: Path) -> str:
    """Held-out loss by step and language as CSV: a table, because a key a language would be too many charts."""
    lines = [
        f"{event['step']},{language},{loss}"
        for event in read_events(path)
        if event["event"] == "held_out"
        for language, loss in event.get("languages", {}).items()
    ]
    return "\n".join(["step,language,loss", *lines, ""]) if lines else ""


def milliseconds(event: Event) -> int:
    """When an event was written, in MLflow's unit."""
    return int(event["time"] * 1000)
