"""Curves over steps and layers, over seeds: what figures draw and what losses.csv and layers.csv hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from xalign_ray.report.columns import Column
from xalign_ray.report.numbers import measure
from xalign_ray.report.run import Run
from xalign_ray.tasks.scores import ALL_LANGUAGES

MAX_POINTS = 160  # of a drawn curve; more are averaged, so that a long run is still a small page
TOTAL, MASKED_LM, HELD_OUT = "train/loss", "train/loss_masked_lm", "held_out/loss"
_LOSS = "train/loss"
_NO_LOSS = "train/loss_scale"

Points = dict[int, float]


@dataclass(frozen=True)
class Curve:
    """Mean of a column's runs over what is on the horizontal axis, with the lowest and highest run.

    Attributes:
        restarts: steps after which one of the runs went on from a checkpoint.
    """

    label: str
    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    restarts: tuple[int, ...] = ()


@dataclass(frozen=True)
class LossPoint:
    """One number of one run; `language` is empty for a mean over languages."""

    series: str
    language: str
    step: int
    value: float


def loss_points(run: Run) -> Iterator[LossPoint]:
    """Every logged loss of a run along its surviving lineage; those that were not finite are left out."""
    for event in run.events:
        for name, value in event.get("metrics", {}).items():
            kept = (event["event"] == "step" and name.startswith(_LOSS) and name != _NO_LOSS) or name == HELD_OUT
            if kept and value is not None:
                yield LossPoint(name, "", event["step"], value)
        for language, value in event.get("languages", {}).items():
            yield LossPoint(HELD_OUT, language, event["step"], value)


def loss_curves(columns: Sequence[Column]) -> dict[tuple[str, str], list[Curve]]:
    """The curves of all columns by (series, language), thinned to MAX_POINTS."""
    curves: dict[tuple[str, str], list[Curve]] = {}
    for column in columns:
        runs: dict[tuple[str, str], list[Points]] = {}
        for run in column.runs:
            own: dict[tuple[str, str], Points] = {}
            for point in loss_points(run):
                own.setdefault((point.series, point.language), {})[point.step] = point.value
            for name, points in own.items():
                runs.setdefault(name, []).append(points)
        restarts = _restarts(column)
        for name, several in runs.items():
            curves.setdefault(name, []).append(replace(_thin(_combine(column.label, several)), restarts=restarts))
    return curves


def _restarts(column: Column) -> tuple[int, ...]:
    begun = {event["step"] for run in column.runs for event in run.events if event["event"] == "start"}
    return tuple(sorted(begun - {0}))


def layer_curves(columns: Sequence[Column], metric: str) -> dict[str, list[Curve]]:
    """The curves of all columns over layers, by language; the mean over languages first."""
    curves: dict[str, list[Curve]] = {}
    for column in columns:
        by_language: dict[str, dict[int | str, Points]] = {}
        for key, cell in measure(column).items():
            if key.metric == metric and isinstance(key.layer, int):
                for seed, value in cell.values.items():
                    by_language.setdefault(key.language, {}).setdefault(seed, {})[key.layer] = value
        for language, by_seed in by_language.items():
            curves.setdefault(language, []).append(_combine(column.label, list(by_seed.values())))
    return dict(sorted(curves.items(), key=lambda item: (item[0] != ALL_LANGUAGES, item[0])))


def layer_chances(columns: Sequence[Column], metric: str) -> dict[str, float]:
    """Chance by language of a metric that is measured at every layer."""
    return {
        key.language: cell.chance
        for column in columns
        for key, cell in measure(column).items()
        if key.metric == metric and isinstance(key.layer, int) and cell.chance is not None
    }


def _combine(label: str, runs: Sequence[Mapping[int, float]]) -> Curve:
    common = sorted(set(runs[0]).intersection(*runs[1:]))
    values = np.array([[points[x] for x in common] for points in runs], np.float64)
    x = np.array(common, np.float64)
    return Curve(label, x, values.mean(axis=0), values.min(axis=0), values.max(axis=0))


def _thin(curve: Curve) -> Curve:
    """Means of neighbours: the noise of single steps goes, the last step's mean stays at the right end."""
    if len(curve.x) <= MAX_POINTS:
        return curve
    cuts = np.linspace(0, len(curve.x), MAX_POINTS + 1).astype(int)
    bins = [slice(low, high) for low, high in pairwise(cuts)]

    def means(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([values[part].mean() for part in bins])

    return Curve(curve.label, means(curve.x), means(curve.mean), means(curve.low), means(curve.high))
