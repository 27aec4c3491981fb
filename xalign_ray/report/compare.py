"""Compares encoders: means over groups of languages and over seeds, and how far each is from a baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, cast

import numpy as np
import pandas as pd

from xalign_ray.config.explain import suggest
from xalign_ray.errors import ConfigError
from xalign_ray.report.bootstrap import difference_interval
from xalign_ray.report.frames import KEY, is_at_chance, keep, measure, score_frame
from xalign_ray.report.groups import EVERY, Background, check_groupings, group_languages
from xalign_ray.tasks.registry import METRICS
from xalign_ray.tasks.scores import ALL_LANGUAGES, Score
from xalign_ray.tasks.task import SHARE

COLUMNS = [
    *("by", "group", "languages", "metric", "split", "layer", "pooling", "label", "mean", "standard_deviation"),
    *("seeds", "n", "chance", "at_chance", "baseline", "difference", "low_95", "high_95"),
    *("difference_languages", "difference_seeds"),
]
_key = attrgetter(*KEY)
BY_SEED = ["values", "differences"]  # dicts by seed

Record = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """Encoders side by side.

    Attributes:
        labels: of the encoders, in their order.
        baseline: one of them.
        frame: a row a grouping, metric, group of languages and label, with COLUMNS and BY_SEED. `mean` is over the
            languages that all its seeds have, `difference` from the baseline over the languages and seeds that both
            have (over all seeds of each, and `difference_seeds` 0, where none is in common); None for the baseline, for
            what it lacks, and for cosines. `low_95` and `high_95` are None where there are too few for an interval.
        by: the groupings, in the order asked for.
    """

    labels: tuple[str, ...]
    baseline: str
    frame: pd.DataFrame
    by: tuple[str, ...]

    def records(self, by: str) -> list[Record]:
        """The rows of a grouping."""
        return keep(self.frame, self.frame.by == by).to_dict("records")  # type: ignore[return-value]


@dataclass(frozen=True)
class _Block:
    """One label's values of one measurement: [languages, seeds], NaN where a seed lacks a language."""

    languages: tuple[str, ...]
    seeds: tuple[int | str, ...]
    values: np.ndarray
    chance: np.ndarray
    n: np.ndarray

    def pick(self, languages: Sequence[int], seeds: Sequence[int]) -> _Block:
        rows, columns = list(languages), list(seeds)
        names = tuple(self.languages[row] for row in rows)
        picked = tuple(self.seeds[column] for column in columns)
        return _Block(names, picked, self.values[np.ix_(rows, columns)], self.chance[rows], self.n[rows])

    def complete(self, wanted: set[str]) -> _Block | None:
        """The wanted languages that all seeds have; those of the most seeds where no language has them all."""
        rows = [row for row, language in enumerate(self.languages) if language in wanted]
        if not rows:
            return None
        there = ~np.isnan(self.values[rows])
        patterns = [tuple(np.flatnonzero(own).tolist()) for own in there]
        names = [str(seed) for seed in self.seeds]
        most = max(patterns, key=lambda own: (len(own), patterns.count(own), sorted(names[one] for one in own)))
        whole = [row for row, own in zip(rows, there, strict=True) if own[list(most)].all()]
        return self.pick(whole, sorted(most, key=lambda one: names[one]))


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
    whole = {label: _headline(scores) for label, scores in scores_by_label.items()}
    blocks = _blocks(measure(score_frame(whole), background.seeds))
    rows = [
        {"by": name, "baseline": chosen, **dict(zip(KEY, key, strict=True))} | row
        for name in by
        for key in sorted(blocks, key=lambda key: (list(METRICS).index(key[0]), *key[1:]))
        for row in _rows(name, key[0], blocks[key], chosen, background)
    ]
    frame = pd.DataFrame(rows, columns=COLUMNS + BY_SEED, dtype=object)
    return Comparison(labels, chosen, frame.where(frame.notna(), None), tuple(by))


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


def _headline(scores: Sequence[Score]) -> list[Score]:
    """Scores without those of numbered layers; the mean over languages only where single languages are not scored."""
    whole = [(score, _key(score)) for score in scores if not isinstance(score.layer, int)]
    single = {key for score, key in whole if score.language != ALL_LANGUAGES}
    return [score for score, key in whole if score.language != ALL_LANGUAGES or key not in single]


def _blocks(measured: pd.DataFrame) -> dict[tuple[str, ...], dict[str, _Block]]:
    """By measurement, then label."""
    blocks: dict[tuple[str, ...], dict[str, _Block]] = {}
    for names, own in measured.groupby(["label", *KEY], sort=False):
        label, *key = map(str, cast(tuple[Any, ...], names))
        rows, languages = pd.factorize(own.language)
        columns, seeds = pd.factorize(own.seed)
        values = np.full((len(languages), len(seeds)), np.nan)
        values[rows, columns] = own.value
        first = own.drop_duplicates("language")
        block = _Block(tuple(languages), tuple(seeds), values, first.chance.to_numpy(float), first.n.to_numpy(int))
        blocks.setdefault(tuple(key), {})[label] = block
    return blocks


def _rows(
    by: str, metric: str, scored: Mapping[str, _Block], baseline: str, background: Background
) -> Iterator[Record]:
    single = {language for block in scored.values() for language in block.languages} - {ALL_LANGUAGES}
    groups = group_languages(by, single, background) if single else {EVERY: [ALL_LANGUAGES]} if by == "task" else {}
    for group, members in groups.items():
        # Where one label tells languages and another only their mean, the mean stands for it among all languages.
        wanted = {*members, ALL_LANGUAGES} if by == "task" else set(members)
        own = {label: found for label, block in scored.items() if (found := block.complete(wanted))}
        base = own.get(baseline) if is_share(metric) else None
        for label, block in own.items():
            compared = _difference(block, base) if base is not None and label != baseline else {}
            yield {"group": group, "label": label} | _mean(block) | compared


def _mean(block: _Block) -> Record:
    means = block.values.mean(axis=0)
    chances = block.chance[~np.isnan(block.chance)]
    mean, chance, n = float(means.mean()), float(chances.mean()) if len(chances) else None, int(block.n.sum())
    # Seeds share one test set, so n does not grow with them.
    return {
        "languages": " ".join(block.languages),
        "mean": mean,
        "standard_deviation": float(means.std(ddof=1)) if len(means) > 1 else None,
        "seeds": len(means),
        "n": n,
        "chance": chance,
        "at_chance": None if chance is None else bool(is_at_chance(mean, chance, n)),
        "values": dict(zip(block.seeds, means.tolist(), strict=True)),
    }


def _difference(block: _Block, base: _Block) -> Record:
    rows = [row for row, language in enumerate(block.languages) if language in base.languages]
    if not rows:
        return {}
    paired = [column for column, seed in enumerate(block.seeds) if seed in base.seeds]
    own = block.pick(rows, paired or range(len(block.seeds)))
    columns = [base.seeds.index(seed) for seed in own.seeds] if paired else range(len(base.seeds))
    other = base.pick([base.languages.index(language) for language in own.languages], columns)
    low, high = difference_interval(own.values, other.values, paired=bool(paired)) or (None, None)
    gaps = own.values.mean(axis=0) - other.values.mean(axis=0) if paired else []
    return {
        "difference": float(own.values.mean() - other.values.mean()),
        "low_95": low,
        "high_95": high,
        "difference_languages": len(rows),
        "difference_seeds": len(paired),
        "differences": dict(zip(own.seeds, map(float, gaps), strict=False)),
    }
