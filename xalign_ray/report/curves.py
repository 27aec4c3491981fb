"""Curves over steps and layers: the mean over seeds with its range, thin enough to be drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xalign_ray.report.columns import Column
from xalign_ray.report.frames import loss_frame, measure, score_frame, scores_of, seeds_of
from xalign_ray.tasks.scores import ALL_LANGUAGES

MAX_DRAWN = 160  # points of a curve; more are averaged, so that a long run is still a small page


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


def loss_curves(columns: Sequence[Column]) -> dict[tuple[str, str], list[Curve]]:
    """The curves of all columns by (series, language), thinned to MAX_DRAWN."""
    restarts = {
        column.label: tuple(sorted({start["step"] for run in column.runs for start in run.log.starts} - {0}))
        for column in columns
    }
    curves: dict[tuple[str, str], list[Curve]] = {}
    for names, own in loss_frame(columns).groupby(["series", "language"], sort=False):
        series, language = cast(tuple[str, str], names)
        curves[series, language] = list(_curves(own, "step", "run", restarts))
    return curves


def layer_curves(columns: Sequence[Column], metric: str, limit: int) -> dict[str, tuple[list[Curve], float | None]]:
    """The curves of all columns over layers in percent, with chance, by language; the mean over languages first.

    Past `limit` languages there are no curves.
    """
    own = {column.label: [s for s in scores_of(column, numbered=True) if s.metric == metric] for column in columns}
    measured = measure(score_frame(own), seeds_of(columns))
    measured = measured.assign(
        layer=measured.layer.astype(int), value=100 * measured.value, chance=100 * measured.chance
    )
    by_language = {str(language): own for language, own in measured.groupby("language")}
    order = sorted(by_language, key=lambda language: (language != ALL_LANGUAGES, language))
    drawn = {language: list(_curves(by_language[language], "layer", "seed", {})) for language in order[:limit]}
    return {language: (drawn.get(language, []), _mean(by_language[language].chance)) for language in order}


def _curves(frame: pd.DataFrame, x: str, across: str, restarts: dict[str, tuple[int, ...]]) -> Iterator[Curve]:
    """A curve a label, at the places that all its runs have."""
    for label, own in frame.groupby("label", sort=False):
        values = own.pivot_table(index=x, columns=across, values="value", aggfunc="mean").dropna()
        ends = [values.mean(axis=1), values.min(axis=1), values.max(axis=1)]
        values = np.column_stack([values.index, *ends]).astype(float)
        if len(values):
            # Means of neighbours: the noise of single steps goes.
            parts = np.array_split(values, min(MAX_DRAWN, len(values)))
            drawn = np.array([part.mean(axis=0) for part in parts]).T
            yield Curve(str(label), *drawn, restarts=restarts.get(str(label), ()))


def _mean(values: pd.Series) -> float | None:
    return float(values.mean()) if values.notna().any() else None
