"""Compares encoders: means over groups of languages and over seeds, and how far each is from a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from xalign_ray.config.explain import suggest
from xalign_ray.errors import ConfigError
from xalign_ray.report.bootstrap import difference_interval
from xalign_ray.report.groups import EVERY, Background, check_groupings, group_languages
from xalign_ray.report.numbers import Cell, Key, Seed, measure_scores, sort_keys
from xalign_ray.tasks.metrics import METRICS, SHARE
from xalign_ray.tasks.scores import ALL_LANGUAGES, Score


@dataclass(frozen=True)
class Difference:
    """How far a mean is from the baseline's, over the languages and seeds that both have.

    Attributes:
        mean: the encoder's less the baseline's; over all seeds of each where none is in common.
        low, high: the 95 % interval, None where there are too few languages and seeds for one.
        languages, seeds: over how many; seeds is 0 where none is in common.
    """

    mean: float
    low: float | None
    high: float | None
    languages: int
    seeds: int


@dataclass(frozen=True)
class GroupCell:
    """One encoder's score in one group of languages.

    Attributes:
        cell: means over the languages, by seed.
        languages: that the means are over: those which all seeds have.
        difference: None for the baseline, for what it lacks, and for cosines.
    """

    cell: Cell
    languages: tuple[str, ...]
    difference: Difference | None


@dataclass(frozen=True)
class Row:
    """One metric in one group of languages.

    Attributes:
        key: what was measured; its language is ALL_LANGUAGES.
        group: as the table calls it.
        cells: by label, where there is one.
    """

    key: Key
    group: str
    cells: Mapping[str, GroupCell]

    @property
    def languages(self) -> list[str]:
        """All that any encoder was scored in."""
        return sorted({language for cell in self.cells.values() for language in cell.languages})


@dataclass(frozen=True)
class Comparison:
    """Encoders side by side.

    Attributes:
        labels: of the encoders, in their order.
        baseline: one of them.
        groupings: rows by the name of the grouping, in the order asked for.
    """

    labels: tuple[str, ...]
    baseline: str
    groupings: Mapping[str, tuple[Row, ...]]


Languages = Mapping[str, Cell]


def compare(
    scores_by_label: Mapping[str, Sequence[Score]],
    baseline: str | None,
    by: Sequence[str],
    background: Background = Background(),
) -> Comparison:
    """Groups scores by language groups, averages them over languages and seeds, and takes differences.

    Scores of single layers belong to a curve and are left out. Every language of a group weighs the same.

    Args:
        scores_by_label: of each encoder, those of all its seeds.
        baseline: label of the encoder that the others are compared with, the first if None.
        by: groupings: task, language, family, size, dictionary.
        background: what groupings and the pairing of seeds need to know.

    Raises:
        ConfigError: the baseline is no label, or a grouping does not exist or cannot be made.
    """
    labels = tuple(scores_by_label)
    chosen = _check_baseline(labels, baseline)
    check_groupings(by, background)
    measured = {
        label: _by_metric(measure_scores(scores, background.seeds)) for label, scores in scores_by_label.items()
    }
    keys = sort_keys({key for metrics in measured.values() for key in metrics})
    groupings = {
        name: tuple(row for key in keys for row in _rows(name, key, measured, chosen, background)) for name in by
    }
    return Comparison(labels, chosen, groupings)


def is_share(metric: str) -> bool:
    """Whether a metric is a share of things that came out right: those can be compared, higher being better."""
    return METRICS[metric].unit == SHARE


def _check_baseline(labels: Sequence[str], baseline: str | None) -> str:
    assert labels, "nothing to compare"
    if baseline is not None and baseline not in labels:
        raise ConfigError(
            f"The baseline '{baseline}' is none of the compared recipes.{suggest(baseline, labels)} "
            f"They are {', '.join(labels)}."
        )
    return baseline or labels[0]


def _by_metric(measured: Mapping[Key, Cell]) -> dict[Key, dict[str, Cell]]:
    """Cells by metric, then language; the mean over languages only where single languages are not told."""
    found: dict[Key, dict[str, Cell]] = {}
    for key, cell in measured.items():
        if not isinstance(key.layer, int):
            found.setdefault(replace(key, language=ALL_LANGUAGES), {})[key.language] = cell
    return {key: _single(cells) for key, cells in found.items()}


def _single(cells: dict[str, Cell]) -> dict[str, Cell]:
    return cells if len(cells) == 1 else {name: cell for name, cell in cells.items() if name != ALL_LANGUAGES}


def _rows(
    by: str, key: Key, measured: Mapping[str, Mapping[Key, Languages]], baseline: str, background: Background
) -> Iterable[Row]:
    scored = {label: metrics[key] for label, metrics in measured.items() if key in metrics}
    languages = {language for cells in scored.values() for language in cells}
    single = languages - {ALL_LANGUAGES}
    groups = group_languages(by, single, background) if single else {EVERY: [ALL_LANGUAGES]} if by == "task" else {}
    for group, members in groups.items():
        # Where one label tells languages and another only their mean, the mean stands for it among all languages.
        wanted = {*members, ALL_LANGUAGES} if by == "task" else set(members)
        own = {label: _complete(cells, wanted) for label, cells in scored.items()}
        own = {label: cells for label, cells in own.items() if cells}
        base = own.get(baseline, {}) if is_share(key.metric) else {}
        yield Row(
            key,
            group,
            {label: _group_cell(cells, {} if label == baseline else base) for label, cells in own.items()},
        )


def _complete(cells: Languages, wanted: set[str]) -> dict[str, Cell]:
    """The wanted languages that all seeds have; those of the most seeds where no language has them all."""
    there = {language: cell for language, cell in cells.items() if language in wanted}
    seeds = [frozenset(cell.values) for cell in there.values()]
    if not seeds:
        return {}
    most = max(seeds, key=lambda own: (len(own), seeds.count(own), sorted(map(str, own))))
    return {
        language: replace(cell, values={seed: cell.values[seed] for seed in sorted(most, key=str)})
        for language, cell in there.items()
        if most <= cell.values.keys()
    }


def _group_cell(cells: Languages, base: Languages) -> GroupCell:
    every = list(cells.values())
    chances = [cell.chance for cell in every if cell.chance is not None]
    pooled = Cell(
        {seed: fmean(cell.values[seed] for cell in every) for seed in every[0].values},
        fmean(chances) if chances else None,
        sum(cell.n for cell in every),
    )
    return GroupCell(pooled, tuple(cells), _difference(cells, base))


def _difference(cells: Languages, base: Languages) -> Difference | None:
    languages = [language for language in cells if language in base]
    if not languages:
        return None
    own, other = (_seeds(known, languages) for known in (cells, base))
    common = [seed for seed in own if seed in other]
    left = _matrix(cells, languages, common or own)
    right = _matrix(base, languages, common or other)
    low, high = difference_interval(left, right, paired=bool(common)) or (None, None)
    return Difference(float(left.mean() - right.mean()), low, high, len(languages), len(common))


def _seeds(cells: Languages, languages: Sequence[str]) -> list[Seed]:
    return list(cells[languages[0]].values)


def _matrix(cells: Languages, languages: Sequence[str], seeds: Sequence[Seed]) -> np.ndarray:
    return np.array([[cells[language].values[seed] for seed in seeds] for language in languages])
