"""Compares encoders: one long frame of scores, means over groups of languages and seeds, differences with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from xalign_ray.config.explain import suggest
from xalign_ray.errors import ConfigError
from xalign_ray.report.groups import Groupings
from xalign_ray.report.run import Run
from xalign_ray.tasks.registry import METRICS
from xalign_ray.tasks.scores import ALL_LANGUAGES, Score
from xalign_ray.tasks.task import SHARE

KEY = ["metric", "split", "layer", "pooling"]  # what was measured, the language apart
_FIELDS = [field.name for field in fields(Score)]
SCORE_COLUMNS = ["label", *_FIELDS, "at_chance"]
COLUMNS = [
    *("by", "group", "languages", *KEY, "label", "mean", "standard_deviation"),
    *("seeds", "n", "chance", "at_chance", "baseline", "difference", "low_95", "high_95"),
    *("difference_languages", "difference_seeds"),
]
FEWEST = 3  # languages or seeds of an interval: of two, a bootstrap sees little more than the two
_SCORED = ["label", *KEY, "language"]
_CELL = [*KEY, "place", "group", "label"]
_STANDARD_ERRORS = 2
_SAMPLES = 10_000
LANGUAGES, SEEDS, _BASE_SEEDS, OTHER_LANGUAGES = 0, 1, 2, 3  # streams of random numbers

Record = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """Encoders side by side.

    Attributes:
        labels: of the encoders, in their order.
        baseline: one of them.
        frame: a row a grouping, measurement, group of languages and label, in the order of tables; COLUMNS, `values`
            (the mean of each seed) and `gaps` (the difference of each common seed). `mean` is over the languages that
            all its seeds have, `difference` from the baseline over the languages and seeds that both have (over all
            seeds of each, and `difference_seeds` 0, where none is in common); None for the baseline, for what it lacks,
            and for cosines. `low_95` and `high_95` are None where there are too few for an interval.
        by: the groupings to show, in their order.
    """

    labels: tuple[str, ...]
    baseline: str
    frame: pd.DataFrame
    by: tuple[str, ...]

    def records(self, by: str) -> list[Record]:
        """The rows of a grouping."""
        return self.frame.loc[self.frame.by == by].to_dict("records")  # type: ignore[return-value]


def score_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """One long frame of the scores of labelled runs, a row a score.

    Its columns are SCORE_COLUMNS (`run` is the folder's name; `at_chance` None where chance is not known), `replicate`
    (the pretraining seed, or the run's name where it is not known) and `single_layer` (a score of one numbered layer,
    which belongs to a curve).
    """
    values_of = attrgetter(*_FIELDS)
    rows = [
        (*values_of(score), run.label, run.name, run.name if run.seed is None else run.seed)
        for run in runs
        for score in run.scores
    ]
    frame = pd.DataFrame(rows, columns=[*_FIELDS, "label", "folder", "replicate"], dtype=object)
    guessed = pd.Series(is_at_chance(frame.value, frame.chance, frame.n), frame.index, dtype=object)
    return frame.assign(
        run=frame.folder,
        at_chance=guessed.where(frame.chance.notna(), None),
        single_layer=frame.layer.map(lambda layer: isinstance(layer, int)).astype(bool),
    )


def is_at_chance(value: ArrayLike, chance: ArrayLike, n: ArrayLike) -> NDArray[np.bool_]:
    """Whether values lie no more than two standard errors of guessing above chance; False where chance is not known.

    The standard error is the binomial sqrt(p (1 - p) / n) with p = chance, for shares in [0, 1].
    """
    shares, p, counts = (np.asarray(one, float) for one in (value, chance, n))
    return shares <= p + _STANDARD_ERRORS * np.sqrt(p * (1 - p) / counts)


def is_share(metric: str) -> bool:
    """Whether a metric is a share of things that came out right: those can be compared, higher being better."""
    return METRICS[metric].unit == SHARE


def measure(scores: pd.DataFrame) -> pd.DataFrame:
    """Scores averaged to one value a label, measurement, language and seed.

    Where a run has a score more than once, the newest pretraining step counts, and scores that differ in their
    fine-tuning seed only are averaged before runs are. The seed is that of pretraining, or of fine-tuning where one
    encoder was fine-tuned with several.

    Args:
        scores: as `score_frame` makes it.

    Returns:
        A row a value: label, KEY, language, seed, value, chance (NaN where there is none), n, in that order. A layer or
        pooling that has no meaning is "".
    """
    frame = scores.assign(
        tuned=scores.seed.where(scores.seed.notna(), scores.run),
        step=scores.step.map(lambda step: step or 0),
        unknown=scores.replicate == scores.run,
        **{name: scores[name].where(scores[name].notna(), "") for name in ("layer", "pooling")},
        **{name: scores[name].astype(float) for name in ("value", "chance", "n")},
    )
    # Runs of one label and seed that are of a pair of languages each have steps of their own.
    frame = frame.loc[frame.step == frame.groupby([*_SCORED, "replicate", "run"]).step.transform("max")]
    frame["single"] = frame.groupby([*_SCORED, "replicate"]).tuned.transform("nunique") == 1
    by_cell = frame.groupby(_SCORED)
    encoders, single = by_cell.replicate.transform("nunique"), by_cell.single.transform("all")
    distinct = by_cell.unknown.transform("all") & single & (by_cell.tuned.transform("nunique") == encoders)
    frame["chance"], frame["n"] = by_cell.chance.transform("mean"), by_cell.n.transform("min").astype(int)
    frame["seed"] = frame.tuned.where(distinct | (~single & (encoders == 1)), frame.replicate)
    values = frame.groupby([*_SCORED, "seed"]).agg(
        value=("value", "mean"), chance=("chance", "first"), n=("n", "first")
    )
    return values.reset_index()


def compare(scores: pd.DataFrame, labels: Sequence[str], baseline: str | None, by: Groupings) -> Comparison:
    """Groups scores by language groups, averages them over languages and seeds, and takes differences.

    Scores of single layers belong to a curve and are left out. Every language of a group weighs the same.

    Args:
        scores: as `score_frame` makes it.
        labels: of the encoders, in their order.
        baseline: label of the encoder that the others are compared with, the first if None.
        by: the groupings.

    Raises:
        ConfigError: the baseline is no label.
    """
    if baseline is not None and baseline not in labels:
        raise ConfigError(
            f"The baseline '{baseline}' is none of the compared recipes.{suggest(baseline, labels)} "
            f"They are {', '.join(labels)}."
        )
    chosen = baseline or labels[0]
    frame = pd.DataFrame(columns=[*COLUMNS, "values", "gaps"], dtype=object)
    measured = measure(headline(scores))
    if len(measured):
        there = measured.pivot(index=_SCORED, columns="seed", values="value").notna()
        seed_set = there.groupby(list(there.columns)).ngroup().rename("seed_set")
        orders = {"metric": list(METRICS), "label": list(labels)}
        measured = measured.join(seed_set, on=_SCORED).assign(
            **{name: pd.Categorical(measured[name], order, ordered=True) for name, order in orders.items()}
        )
        frame = pd.concat([frame, *(_compare_by(name, measured, by[name], chosen) for name in by)], ignore_index=True)
    return Comparison(tuple(labels), chosen, frame.astype(object).where(frame.notna(), None), tuple(by))


def difference_interval(values: np.ndarray, base: np.ndarray, paired: bool) -> tuple[float, float] | None:
    """Between which numbers the mean of `values` less that of `base` lies in 95 % of the resampled experiments.

    In each of them languages are drawn with replacement, the same ones on both sides, and seeds as well (Efron and
    Tibshirani 1993, percentile interval; Koehn 2004 for the pairing). The interval is the same whenever it is asked
    for. It is about other languages and other seeds like these, not about other sentences.

    Args:
        values: [languages, seeds] the scores of one encoder.
        base: [languages, seeds of the baseline] those of the other, the same languages.
        paired: the seeds are the same too, and are drawn together.

    Returns:
        Lower and upper end; None for fewer than `FEWEST` languages and fewer than `FEWEST` seeds.
    """
    languages, seeds = values.shape
    if max(languages, min(seeds, base.shape[1])) < FEWEST:
        return None
    means = resample(values - base) if paired else resample(values) - resample(base, seeds=_BASE_SEEDS)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def resample(values: np.ndarray, languages: int = LANGUAGES, seeds: int = SEEDS) -> np.ndarray:
    """[draws] the mean of the languages and seeds that were drawn, of [languages, seeds] values.

    What is drawn from streams of the same numbers is drawn together: pairs stay pairs.
    """
    return ((draw(values.shape[0], languages) @ values) * draw(values.shape[1], seeds)).sum(axis=1)


@lru_cache(maxsize=64)
def draw(count: int, stream: int) -> np.ndarray:
    """[draws, count] how much each of `count` things weighs in each draw, in all 1."""
    return np.random.default_rng((count, stream)).multinomial(count, [1 / count] * count, size=_SAMPLES) / count


def headline(scores: pd.DataFrame) -> pd.DataFrame:
    """Scores of no single layer; the mean over languages only where single languages are not scored."""
    whole = scores.loc[~scores.single_layer]
    is_single = whole.language != ALL_LANGUAGES
    has_single = is_single.groupby([whole[name] for name in ("label", *KEY)], dropna=False).transform("any")
    return whole.loc[is_single | ~has_single]


class _Block(NamedTuple):
    """One label's values of one measurement and group: [languages, seeds]."""

    languages: np.ndarray
    seeds: np.ndarray
    values: np.ndarray


def _compare_by(by: str, measured: pd.DataFrame, place_of: Any, baseline: str) -> pd.DataFrame:
    # Where one label tells languages and another only their mean, the mean stands for it among all languages.
    single = measured if by == "task" else measured.loc[measured.language != ALL_LANGUAGES]
    places = {language: place_of(language) for language in single.language.unique()}
    own = _complete(
        single.assign(
            place=single.language.map(lambda language: places[language][0]),
            group=single.language.map(lambda language: places[language][1]),
        )
    )
    cells = own.groupby(_CELL, observed=True)
    means = own.groupby([*_CELL, "seed"], observed=True).value.mean().groupby(_CELL, observed=True)
    rows = means.agg(mean="mean", standard_deviation="std", seeds="size", values=list)
    # Seeds share one test set, so n does not grow with them.
    once = own.drop_duplicates([*_CELL, "language"]).groupby(_CELL, observed=True)
    rows = rows.join(once.agg(languages=("language", " ".join), n=("n", "sum"), chance=("chance", "mean")))
    guessed = pd.Series(is_at_chance(rows["mean"], rows.chance, rows.n), rows.index, dtype=object)
    columns = [own[name].to_numpy() for name in ("language", "seed", "value")]
    blocks = {cell: _block(*(column[at] for column in columns)) for cell, at in cells.indices.items()}
    compared = [
        _difference(blocks[cell], blocks.get((*cell[:-1], baseline)))
        if cell[-1] != baseline and is_share(cell[0])
        else {}
        for cell in rows.index
    ]
    differences = pd.DataFrame(compared, rows.index, dtype=object)
    rows = rows.join(differences).assign(at_chance=guessed.where(rows.chance.notna(), None), baseline=baseline, by=by)
    return rows.reset_index().drop(columns="place").astype(object)


def _complete(own: pd.DataFrame) -> pd.DataFrame:
    """The languages that all seeds of a cell have; those of the most seeds where no language has them all."""
    patterns = own.groupby([*_CELL, "seed_set"], observed=True).agg(
        seeds=("seed", "nunique"), languages=("language", "nunique")
    )
    most = patterns.reset_index().sort_values(["seeds", "languages", "seed_set"]).drop_duplicates(_CELL, keep="last")
    return own.merge(most[[*_CELL, "seed_set"]])


def _block(languages: np.ndarray, seeds: np.ndarray, values: np.ndarray) -> _Block:
    """Of rows that are sorted by language, then seed, and lack none."""
    unique = pd.unique(seeds)
    return _Block(languages[:: len(unique)], unique, values.reshape(-1, len(unique)))


def _difference(own: _Block, base: _Block | None) -> Record:
    if base is None or not (rows := np.isin(own.languages, base.languages)).any():
        return {}
    values, other = own.values[rows], base.values[np.isin(base.languages, own.languages)]
    seeds = np.isin(own.seeds, base.seeds)
    if paired := bool(seeds.any()):
        values, other = values[:, seeds], other[:, np.isin(base.seeds, own.seeds)]
    low, high = difference_interval(values, other, paired) or (None, None)
    return {
        "difference": float(values.mean() - other.mean()),
        "low_95": low,
        "high_95": high,
        "difference_languages": len(values),
        "difference_seeds": int(seeds.sum()),
        "gaps": (values.mean(axis=0) - other.mean(axis=0)).tolist() if paired else [],
    }
