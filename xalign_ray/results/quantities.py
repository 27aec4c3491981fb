"""Looks up in a report's scores what a paper's table or claim is about: a value for each language and seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from xalign_ray.results.aggregate import ALL_LANGUAGES, blocks, measure, without_layers
from xalign_ray.results.groups import WITH, WITHOUT, known_groupings, other_languages
from xalign_ray.results.quantity import ZERO_SHOT, Quantity
from xalign_ray.results.run import Run, columns_of

_ENGLISH = "en"
COLUMNS = ["label", "metric", "test_set", "language", "seed", "value", "n", "chance", "place"]

Values = pd.DataFrame  # a row a language, a column a seed, without gaps


@dataclass(frozen=True)
class Measured:
    """All scores of a report, one a label, metric, test set, language and seed.

    Attributes:
        frame: COLUMNS; a test set is a split with its layer and pooling, lower places are preferred. A pair with
            English is called by its other language.
        has_dictionary: whether a language has one in every run that has any; None of English, or where runs differ.
    """

    frame: pd.DataFrame
    has_dictionary: Callable[[str], bool | None]

    @property
    def labels(self) -> list[str]:
        """Of the arms that have a score, in the order of the report."""
        return list(self.frame.label.unique())

    def values(self, quantity: Quantity) -> Values:
        """What is known of one quantity, as `values_of` has it."""
        return self.values_of([quantity])[0]

    def values_of(self, quantities: Sequence[Quantity]) -> list[Values]:
        """What is known of quantities that are compared with each other, all on one test set.

        Each has the languages that it is about and all its seeds have. All are empty where no test set is in common.
        """
        shared = self._test_sets(quantities)
        chosen = self.frame.loc[self.frame.test_set.isin(shared[:1])]
        return [self._difference(chosen, quantity) for quantity in quantities]

    def why_apart(self, quantities: Sequence[Quantity]) -> str:
        """Why quantities that all have scores cannot be compared; empty where they can, or where one has none."""
        if self._test_sets(quantities):
            return ""
        own = {(part.label, part.metric): ", ".join(self._own_sets(part)) for part in _parts(quantities)}
        named = [f"{label} on {sets}" for (label, _), sets in own.items()]
        return f"not scored alike: {'; '.join(dict.fromkeys(named))}" if all(own.values()) else ""

    def _test_sets(self, quantities: Sequence[Quantity]) -> list[str]:
        """Those on which all quantities have scores, the preferred one first."""
        first, *others = map(self._own_sets, _parts(quantities))
        return [one for one in first if all(one in other for other in others)]

    def _own_sets(self, quantity: Quantity) -> list[str]:
        own = self.frame.loc[(self.frame.label == quantity.label) & (self.frame.metric == quantity.metric)]
        return list(own.sort_values("place", kind="stable").test_set.unique())

    def _difference(self, frame: pd.DataFrame, quantity: Quantity) -> Values:
        own = self._of(frame, quantity.added)
        if (other := quantity.taken_away) is None:
            return own
        taken = self._of(frame, other)
        common = own.index.intersection(taken.index), own.columns.intersection(taken.columns)
        return own.loc[common] - taken.loc[common] if len(common[1]) else own.iloc[:0, :0]

    def _of(self, frame: pd.DataFrame, quantity: Quantity) -> Values:
        own = frame.loc[(frame.label == quantity.label) & (frame.metric == quantity.metric)]
        own = own.loc[[self._is_meant(quantity, language) for language in own.language]]
        found = [pd.DataFrame(one.values, one.languages, one.seeds) for one in blocks(own, ["label"]).values()]
        return found[0] if found else pd.DataFrame()

    def _is_meant(self, quantity: Quantity, language: str) -> bool:
        if quantity.dictionary is not None and self.has_dictionary(language) is not quantity.dictionary:
            return False
        if quantity.languages and language not in quantity.languages:
            return False
        if quantity.language == ZERO_SHOT:
            return language not in (_ENGLISH, ALL_LANGUAGES)
        return language != ALL_LANGUAGES if not quantity.language else language == quantity.language


def measured(runs: Sequence[Run], scores: pd.DataFrame) -> Measured:
    """The headline scores of labelled runs.

    Args:
        runs: with labels.
        scores: as `compare.score_frame` makes it.
    """
    coverage = known_groupings(runs, {}).get("dictionary")

    def has_dictionary(language: str) -> bool | None:
        return {WITH: True, WITHOUT: False}.get(coverage(language)[1]) if coverage else None

    if not len(scores):
        return Measured(pd.DataFrame(columns=COLUMNS), has_dictionary)
    frame = measure(without_layers(scores))
    parts = zip(frame.split, frame.layer, frame.pooling, strict=True)
    named = frame.assign(language=frame.language.map(_name), test_set=[", ".join(filter(None, one)) for one in parts])
    places = {label: place for place, label in enumerate(columns_of(runs))}
    ordered = named.sort_values("label", key=lambda column: column.map(places), kind="stable")
    return Measured(ordered.filter(COLUMNS), has_dictionary)


def _parts(quantities: Sequence[Quantity]) -> list[Quantity]:
    return [part for quantity in quantities for part in (quantity.added, quantity.taken_away) if part]


def _name(language: str) -> str:
    return language if language in (_ENGLISH, ALL_LANGUAGES) else "-".join(other_languages(language))
