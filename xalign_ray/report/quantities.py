"""Looks up in a report's scores what a paper's table or claim is about: a value for each language and seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from xalign_ray.published.quantity import ZERO_SHOT, Quantity
from xalign_ray.report.compare import headline, measure
from xalign_ray.report.groups import WITH, WITHOUT, known_groupings, other_languages
from xalign_ray.report.run import Run, columns_of
from xalign_ray.tasks.scores import ALL_LANGUAGES

_ENGLISH = "en"
_USUAL = ("test", "tatoeba", "dev")  # splits: those that papers print come first
_OF_NO_RUN = pd.DataFrame(columns=["label", "metric", "language", "seed", "value"])

Values = pd.DataFrame  # a row a language, a column a seed, without gaps


@dataclass(frozen=True)
class Measured:
    """All scores of a report, one a label, metric, language and seed.

    Attributes:
        frame: label, metric, language, seed, value. A pair with English is called by its other language.
        has_dictionary: whether a language has one in every run that has any; None of English, or where runs differ.
    """

    frame: pd.DataFrame
    has_dictionary: Callable[[str], bool | None]

    @property
    def labels(self) -> list[str]:
        """Of the arms that have a score, in the order of the report."""
        return list(self.frame.label.unique())

    def values(self, quantity: Quantity) -> Values:
        """What is known of a quantity, in the languages that it is about and all seeds have; empty if nothing is."""
        own = self._of(quantity.added)
        if (other := quantity.taken_away) is None:
            return own
        taken = self._of(other)
        common = own.index.intersection(taken.index), own.columns.intersection(taken.columns)
        return own.loc[common] - taken.loc[common] if len(common[1]) else own.iloc[:0, :0]

    def _of(self, quantity: Quantity) -> Values:
        own = self.frame.loc[(self.frame.label == quantity.label) & (self.frame.metric == quantity.metric)]
        table = own.pivot_table(index="language", columns="seed", values="value", sort=True).dropna()
        return table.loc[[language for language in table.index if self._is_meant(quantity, language)]]

    def _is_meant(self, quantity: Quantity, language: str) -> bool:
        if quantity.dictionary is not None and self.has_dictionary(language) is not quantity.dictionary:
            return False
        if quantity.languages and language not in quantity.languages:
            return False
        if quantity.language == ZERO_SHOT:
            return language not in (_ENGLISH, ALL_LANGUAGES)
        return language != ALL_LANGUAGES if not quantity.language else language == quantity.language


def measured(runs: Sequence[Run], scores: pd.DataFrame) -> Measured:
    """The headline scores of labelled runs; of several test sets of a metric the one that papers print.

    Args:
        runs: with labels.
        scores: as `compare.score_frame` makes it.
    """
    coverage = known_groupings(runs, {}).get("dictionary")

    def has_dictionary(language: str) -> bool | None:
        return {WITH: True, WITHOUT: False}.get(coverage(language)[1]) if coverage else None

    frame = measure(headline(scores)) if len(scores) else _OF_NO_RUN.assign(split="", layer="", pooling="")
    frame["place"] = [_USUAL.index(split) if split in _USUAL else len(_USUAL) for split in frame.split]
    order = frame.sort_values(["place", "split", "layer", "pooling"], key=lambda column: column.map(str), kind="stable")
    test_set = order.drop_duplicates(["label", "metric"])[["label", "metric", "split", "layer", "pooling"]]
    own = frame.merge(test_set)
    named = own.assign(language=own.language.map(_name), seed=own.seed.map(str))
    places = {label: place for place, label in enumerate(columns_of(runs))}
    ordered = named.sort_values("label", key=lambda column: column.map(places), kind="stable")
    return Measured(ordered.filter(list(_OF_NO_RUN.columns)), has_dictionary)


def mean_and_deviation(values: Values) -> tuple[float, float | None]:
    """Of the seeds' means over languages; no deviation of one seed."""
    seeds = values.to_numpy(float).mean(axis=0)
    return float(seeds.mean()), float(np.std(seeds, ddof=1)) if len(seeds) > 1 else None


def _name(language: str) -> str:
    return language if language in (_ENGLISH, ALL_LANGUAGES) else "-".join(other_languages(language))
