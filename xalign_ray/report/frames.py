"""The long frames of a report: a row a score, a row a measurement and seed, a row a point of a loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from xalign_ray.report.columns import Column
from xalign_ray.report.log import POINT_COLUMNS, thin
from xalign_ray.tasks.scores import Score

KEY = ["metric", "split", "layer", "pooling"]  # what was measured, the language apart
SCORE_COLUMNS = ["label", *(field.name for field in fields(Score)), "at_chance"]
_FIELDS = attrgetter(*SCORE_COLUMNS[1:-1])
_STANDARD_ERRORS = 2


def scores_of(column: Column, numbered: bool | None = None) -> list[Score]:
    """The scores of all its runs, each with the name of the folder that it was found in as its run.

    Args:
        column: one of a report.
        numbered: only those of single layers, which belong to a curve, or only the others.
    """
    named = [(name, score) for run in column.runs for name in [run.name] for score in run.scores]
    return [replace(one, run=name) for name, one in named if numbered in (None, isinstance(one.layer, int))]


def seeds_of(columns: Sequence[Column]) -> dict[str, int]:
    """The pretraining seed of each run that has one, by the run's name."""
    return {run.name: run.seed for column in columns for run in column.runs if run.seed is not None}


def keep(frame: pd.DataFrame, mask: Any) -> pd.DataFrame:
    """The rows of a frame where `mask` is true."""
    return cast(pd.DataFrame, frame[np.asarray(mask, bool)])


def score_frame(scores_by_label: Mapping[str, Sequence[Score]]) -> pd.DataFrame:
    """A row a score: label, the fields of `Score`, and whether it is at chance (None where chance is not known)."""
    rows = [(label, *_FIELDS(score), None) for label, scores in scores_by_label.items() for score in scores]
    frame = pd.DataFrame(rows, columns=SCORE_COLUMNS, dtype=object)
    guessed = pd.Series(is_at_chance(frame.value, frame.chance, frame.n), frame.index, dtype=object)
    frame["at_chance"] = guessed.where(frame.chance.notna(), None)
    return frame


def is_at_chance(value: ArrayLike, chance: ArrayLike, n: ArrayLike) -> NDArray[np.bool_]:
    """Whether values lie no more than two standard errors of guessing above chance; False where chance is not known.

    The standard error is the binomial sqrt(p (1 - p) / n) with p = chance, for shares in [0, 1].
    """
    shares, p, counts = (np.asarray(one, float) for one in (value, chance, n))
    return shares <= p + _STANDARD_ERRORS * np.sqrt(p * (1 - p) / counts)


def measure(scores: pd.DataFrame, seeds: Mapping[str, int]) -> pd.DataFrame:
    """Scores averaged to one value a label, measurement, language and seed.

    Where a run has a score more than once, the newest pretraining step counts, and scores that differ in their
    fine-tuning seed only are averaged before runs are. The seed is that of pretraining, or of fine-tuning where one
    encoder was fine-tuned with several.

    Args:
        scores: as `score_frame` makes it.
        seeds: the pretraining seed of a run, where it is known; a run without one is told by its name.

    Returns:
        A row a value: label, KEY, language, seed, value, chance (NaN where there is none), n, all in the order of the
        scores. A layer or pooling that has no meaning is "".
    """
    cell = ["label", *KEY, "language"]
    run = scores.run.where(scores.run.notna(), scores.encoder)
    frame = scores.assign(
        replicate=run.map(lambda name: seeds.get(name, name)),
        tuned=scores.seed.where(scores.seed.notna(), run),
        step=scores.step.map(lambda step: step or 0).astype(int),
        layer=scores.layer.where(scores.layer.notna(), ""),
        pooling=scores.pooling.fillna(""),
        **{name: scores[name].astype(float) for name in ("value", "chance", "n")},
    )
    frame = keep(frame, frame.step == frame.groupby([*cell, "replicate"], sort=False).step.transform("max"))
    by_cell = frame.groupby(cell, sort=False)
    tuned = frame.groupby([*cell, "replicate"], sort=False).tuned.transform("nunique")
    frame = frame.assign(single=tuned == 1, unknown=frame.replicate.map(lambda one: isinstance(one, str)))
    by_cell = frame.groupby(cell, sort=False)
    single, encoders = by_cell.single.transform("all"), by_cell.replicate.transform("nunique")
    distinct = by_cell.unknown.transform("all") & single & (by_cell.tuned.transform("nunique") == encoders)
    by_tuning = (~single & (encoders == 1)) | distinct
    frame = frame.assign(
        seed=frame.tuned.where(by_tuning, frame.replicate),
        chance=by_cell.chance.transform("mean"),
        n=by_cell.n.transform("min").astype(int),
    )
    kept = {name: (name, "mean" if name == "value" else "first") for name in ("value", "chance", "n")}
    return frame.groupby([*cell, "seed"], sort=False).agg(**kept).reset_index()


def loss_frame(columns: Sequence[Column]) -> pd.DataFrame:
    """A row a point of a loss: label, run, seed, and what `Log.points` has, runs of one column equally thinned."""
    frames = [
        thin(run.log.points, max(other.log.width for other in column.runs))[0].assign(
            label=column.label, run=run.name, seed=run.seed
        )
        for column in columns
        for run in column.runs
    ]
    return pd.concat(frames, ignore_index=True).reindex(columns=["label", "run", "seed", *POINT_COLUMNS])
