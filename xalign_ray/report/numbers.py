"""Scores over seeds: mean, spread, whether a number is told apart from guessing, and paired gaps between columns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from xalign_ray.report.columns import Column
from xalign_ray.tasks.metrics import METRICS
from xalign_ray.tasks.scores import ALL_LANGUAGES, Score

STANDARD_ERRORS = 2

Seed = int | str


@dataclass(frozen=True)
class Key:
    """What was measured: everything in a score but whose it is and how it came out."""

    metric: str
    split: str
    language: str
    layer: int | str | None
    pooling: str | None


@dataclass(frozen=True)
class Cell:
    """One measurement of one column.

    Attributes:
        values: by seed; of pretraining, or of fine-tuning where only one pretraining seed was run.
        chance: what guessing would reach, None where there is no such thing.
        n: number of things scored with each seed.
    """

    values: Mapping[Seed, float]
    chance: float | None
    n: int

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return statistics.fmean(self.values.values())

    @property
    def spread(self) -> float | None:
        """Sample standard deviation over seeds (divided by their number less one), None for one seed."""
        return statistics.stdev(self.values.values()) if len(self.values) > 1 else None

    @property
    def at_chance(self) -> bool:
        """Whether the mean is not above chance; seeds share one test set, so n does not grow with them."""
        return self.chance is not None and is_at_chance(self.mean, self.chance, self.n)


@dataclass(frozen=True)
class Gap:
    """How far a column is from the baseline in one measurement, seed by seed where both have the seed.

    Attributes:
        by_seed: the column's value minus the baseline's.
        mean: over these seeds; the difference of the means where no seed is in common.
        both_at_chance: a difference between two guesses.
    """

    key: Key
    label: str
    by_seed: Mapping[Seed, float]
    mean: float
    both_at_chance: bool


def is_at_chance(value: float, chance: float, n: int) -> bool:
    """Whether a value lies no more than two standard errors of guessing above chance.

    The standard error is the binomial sqrt(p (1 - p) / n) with p = chance, for shares in [0, 1].
    """
    return value <= chance + STANDARD_ERRORS * math.sqrt(chance * (1 - chance) / n)


def measure(column: Column) -> dict[Key, Cell]:
    """All measurements of a column, replicated by its pretraining seeds."""
    return measure_scores(scores_of(column), seeds_of([column]))


def scores_of(column: Column) -> list[Score]:
    """The scores of all its runs, each with the name of the folder that it was found in as its run."""
    return [replace(score, run=run.name) for run in column.runs for score in run.scores]


def seeds_of(columns: Sequence[Column]) -> dict[str, int]:
    """The pretraining seed of each run that has one, by the run's name."""
    return {run.name: run.seed for column in columns for run in column.runs if run.seed is not None}


def measure_scores(scores: Iterable[Score], seeds: Mapping[str, int]) -> dict[Key, Cell]:
    """All measurements among the scores of one column.

    Where a run has a score more than once, the newest pretraining step counts, and scores that differ in their
    fine-tuning seed only are averaged before runs are.

    Args:
        scores: of any number of runs; an encoder made elsewhere is its own run.
        seeds: the pretraining seed of a run, where it is known.
    """
    found: dict[Key, dict[Seed, list[Score]]] = {}
    for score in scores:
        run = score.run or score.encoder
        found.setdefault(key_of(score), {}).setdefault(seeds.get(run, run), []).append(score)
    return {key: _cell(by_run) for key, by_run in found.items()}


def key_of(score: Score) -> Key:
    """What a score measures."""
    return Key(score.metric, score.split, score.language, score.layer, score.pooling)


def headline_keys(measured: Iterable[Mapping[Key, Cell]]) -> list[Key]:
    """The measurements that stand for a column, means over languages and no single layers, in the order of metrics."""
    keys = {key for cells in measured for key in cells}
    return sort_keys(key for key in keys if key.language == ALL_LANGUAGES and not isinstance(key.layer, int))


def sort_keys(keys: Iterable[Key]) -> list[Key]:
    """Keys by metric as tasks/metrics.py lists them, then split, layer and language."""
    order = list(METRICS)
    return sorted(
        keys, key=lambda key: (order.index(key.metric), key.split, str(key.layer), str(key.pooling), key.language)
    )


def find_gaps(columns: Sequence[Column], baseline: str) -> list[Gap]:
    """The headline gaps of all other columns to the baseline, for scores that have a chance level."""
    measured = {column.label: measure(column) for column in columns}
    base = measured[baseline]
    return [
        _gap(key, column.label, measured[column.label][key], base[key])
        for key in headline_keys([base])
        for column in columns
        if base[key].chance is not None and column.label != baseline and key in measured[column.label]
    ]


def _cell(by_run: Mapping[Seed, Sequence[Score]]) -> Cell:
    newest = {seed: _newest(scores) for seed, scores in by_run.items()}
    values: dict[Seed, float] = {
        seed: statistics.fmean(score.value for score in scores) for seed, scores in newest.items()
    }
    every = [score for scores in newest.values() for score in scores]
    own = [{score.seed for score in scores} for scores in newest.values()]
    single = all(len(seeds) == 1 for seeds in own)
    told_apart = single and len(set().union(*own)) == len(own)
    unknown = all(isinstance(seed, str) for seed in newest)
    if (len(own) == 1 and not single) or (unknown and told_apart):
        values = _by_seed(every)
    chances = [score.chance for score in every if score.chance is not None]
    return Cell(values, statistics.fmean(chances) if chances else None, min(score.n for score in every))


def _by_seed(scores: Sequence[Score]) -> dict[Seed, float]:
    by_seed: dict[Seed, list[float]] = {}
    for score in scores:
        by_seed.setdefault((score.run or score.encoder) if score.seed is None else score.seed, []).append(score.value)
    return {seed: statistics.fmean(values) for seed, values in by_seed.items()}


def _newest(scores: Sequence[Score]) -> list[Score]:
    step = max(score.step or 0 for score in scores)
    return [score for score in scores if (score.step or 0) == step]


def _gap(key: Key, label: str, cell: Cell, base: Cell) -> Gap:
    common = [seed for seed in cell.values if seed in base.values]
    by_seed = {seed: cell.values[seed] - base.values[seed] for seed in common}
    mean = statistics.fmean(by_seed.values()) if by_seed else cell.mean - base.mean
    return Gap(key, label, by_seed, mean, cell.at_chance and base.at_chance)
