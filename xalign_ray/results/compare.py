"""Compares encoders: groups of languages, one long frame of scores, means and differences with intervals"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

from xalign_ray.config.explain import suggest
from xalign_ray.config.language_codes import INVENTED, OTHER, family_of, languages_of
from xalign_ray.errors import ConfigError
from xalign_ray.results.aggregate import KEY, means, seed_values
from xalign_ray.results.difference import Grouping, differences_from, guess_variance, is_at_chance
from xalign_ray.results.run import FIELDS, Run, columns_of, studies_of
from xalign_ray.tasks.registry import METRICS
from xalign_ray.tasks.scores import ALL_LANGUAGES
from xalign_ray.tasks.task import CORRELATION, SHARE

EVERY = "all languages"
UNTRAINED = "in no training data"
WITH, SOME, WITHOUT, PIVOT = "dictionary", "dictionary in some runs only", "no dictionary", "English itself"
_PIVOT = "en"
_NEEDS = {
    "dictionary": "no compared run had a dictionary.",
    "training": "of no compared run the prepared data are known.",
}

Place = tuple[float, str]  # where a group stands in a table, and its name
Groupings = Mapping[str, Callable[[str], Place]]  # the group of a language or pair, by the grouping's name


def known_groupings(runs: Sequence[Run]) -> Groupings:
    """The groupings that the known facts allow.

    A pair with English belongs to its other language; any other pair to both.

    Args:
        runs: with labels.
    """
    covered = [
        frozenset(code for run in label_runs for source in run.sources("dictionaries") for code in source["languages"])
        for label_runs in columns_of(runs).values()
    ]
    groupings: dict[str, Callable[[str], Place]] = {
        "task": lambda _: (0, EVERY),
        "language": lambda language: (0, language),
        "family": _family,
    }
    if any(covered):
        groupings["dictionary"] = partial(
            _beside_english, partial(_coverage, [languages for languages in covered if languages])
        )
    if trained := _training_tokens(runs):
        groupings["training"] = partial(_beside_english, partial(_training_group, trained))
    return groupings


def check_groupings(by: Sequence[str], known: Groupings) -> None:
    """Raises ConfigError naming the first grouping that does not exist, or that nothing is known for."""
    names = list(dict.fromkeys([*known, *_NEEDS]))
    for name in by:
        if name not in names:
            raise ConfigError(f"There is no grouping '{name}'.{suggest(name, names)} Known: {', '.join(names)}.")
        if name not in known:
            raise ConfigError(f"Scores cannot be grouped by {name}: {_NEEDS[name]}")


def _family(language: str) -> Place:
    families = sorted({family_of(code) for code in other_languages(language)})
    return float(bool({INVENTED, OTHER} & set(families))), " and ".join(families)


def _beside_english(place_of: Callable[[tuple[str, ...]], Place], language: str) -> Place:
    """By the languages that are not English; English itself, which all data have in common, stands last."""
    languages = other_languages(language)
    return (math.inf, PIVOT) if languages == (_PIVOT,) else place_of(languages)


def _coverage(dictionaries: Sequence[frozenset[str]], languages: tuple[str, ...]) -> Place:
    covered = [set(languages) <= dictionary_languages for dictionary_languages in dictionaries]
    return (0, WITH) if all(covered) else (1, SOME) if any(covered) else (2, WITHOUT)


def _training_tokens(runs: Sequence[Run]) -> Mapping[str, float]:
    """Tokens of each language in the data of the run that has the most of it; half of a pair's."""
    most_tokens: dict[str, float] = {}
    for run in runs:
        of_run: Counter[str] = Counter()
        for name, pool in (run.data or {}).get("pools", {}).items():
            languages = languages_of(name.partition("/")[2])
            of_run.update({code: pool.get("tokens", 0) / len(languages) for code in languages})
        most_tokens |= {code: max(tokens, most_tokens.get(code, 0)) for code, tokens in of_run.items()}
    return most_tokens


def related_languages(runs: Sequence[Run]) -> Grouping:
    """Names the group of each language in which a method's gain may be alike: languages of one group count as related.

    Where some languages are in no training data of the runs and others are, these are two groups; else a group is a
    family, and a language of no known family is one group.
    """
    tokens = _training_tokens(runs)

    def group(languages: Sequence[str]) -> list[str]:
        places = [_beside_english(partial(_training_group, tokens), language) for language in languages]
        untrained = [bool(tokens) and name == UNTRAINED for _, name in places]
        if len({*untrained}) > 1:
            return [UNTRAINED if is_untrained else "trained" for is_untrained in untrained]
        families = map(_family, languages)
        return [language if at else name for language, (at, name) in zip(languages, families, strict=True)]

    return group


def _training_group(tokens: Mapping[str, float], languages: tuple[str, ...]) -> Place:
    """By the power of ten of the tokens; of two languages the one with fewer decides."""
    if not (fewest := min(tokens.get(code, 0) for code in languages)):
        return 0, UNTRAINED
    power = math.floor(math.log10(fewest))
    return 1 + power, f"{10**power:,} to {10 ** (power + 1):,} tokens"


def other_languages(language: str) -> tuple[str, ...]:
    """The languages that a score is about, without English where there is another."""
    languages = languages_of(language)
    return tuple(code for code in languages if code != _PIVOT) or languages


SCORE_COLUMNS = ["label", *(name for name in FIELDS if name != "vectors"), "at_chance"]  # a sentence has `vectors`
COLUMNS = [
    *("by", "group", "languages", *KEY, "label", "mean", "standard_deviation"),
    *("seeds", "n", "chance", "at_chance", "baseline", "difference", "low_95", "high_95"),
    *("difference_languages", "difference_seeds", "comparisons", "undecided"),
]
_ROW = ["metric", "first", *KEY[1:], "place", "group"]  # in this order rows of tables are sorted
_ALWAYS = ("task", "language")
OF_FINDING = (*_ALWAYS, "family")  # groupings that the headline needs
_GAP = ("difference", "low_95", "high_95", "undecided", "difference_languages", "difference_seeds", "fewest_seeds")

Record = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """Encoders side by side.

    Attributes:
        labels: of the encoders, in their order.
        baseline: one of them.
        frame: a row a grouping, measurement, group of languages and label, in the order of tables: COLUMNS, the rest of
            `means`, `fewest_seeds` (of either side), `key` (the values of KEY), `apart` (in brackets the distinction
            from others of its metric: split, layer, pooling) and `title` (the metric's with it). `difference` is from
            the baseline over the languages and seeds that both have (over all seeds of each, and `difference_seeds` 0,
            where none is in common); None for the baseline, without a score, and for cosines. `low_95` and `high_95`
            are None where there are too few for an interval; any of the `comparisons` of a row is wrongly decided in
            5 % of the cases. `undecided` has the reason, and is empty where a difference is decided.
        by: the groupings to show, in their order.
    """

    labels: tuple[str, ...]
    baseline: str
    frame: pd.DataFrame
    by: tuple[str, ...]

    @property
    def shown(self) -> pd.DataFrame:
        """The rows of the groupings to show, with COLUMNS: what comparison.csv has."""
        rows = pd.concat([self.frame.loc[self.frame.by == by] for by in self.by])
        return rows.reindex(columns=COLUMNS)

    def records(self, by: str) -> list[Record]:
        """The rows of a grouping."""
        return self.frame.loc[self.frame.by == by].to_dict("records")  # type: ignore[return-value]

    def rows(self, by: str) -> list[list[Record]]:
        """The records of a measurement and group of languages, which are one row of a table."""
        return [list(row) for _, row in groupby(self.records(by), key=itemgetter("key", "group"))]


def score_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """One long frame of the scores of labelled runs, a row a score.

    Its columns are SCORE_COLUMNS (`run` is the folder's name; `at_chance` None where chance is not known), `replicate`
    (the pretraining seed, or the run's name where it is not known or none of the study's), `of_tuned_head` (whether
    `seed` is one of fine-tuning) and `single_layer` (a score of one numbered layer, which belongs to a curve).
    """
    frames = []
    for run in runs:
        replicate = run.name if run.is_given or run.seed is None else run.seed
        facts = {"label": run.label, "run": run.name, "replicate": replicate, "is_given": run.is_given}
        frames.append(run.scores.drop_duplicates(FIELDS).assign(**facts))
    frame = pd.concat(frames, ignore_index=True).astype(object)
    of_tuned_head = pd.Series([METRICS[metric].of_tuned_head for metric in frame.metric], frame.index, dtype=bool)
    guessed = pd.Series(
        is_at_chance(frame.value, frame.chance, guess_variance(frame.chance, frame.n)), frame.index, dtype=object
    )
    return frame.assign(
        seed=frame.seed.where(of_tuned_head | ~frame.is_given.astype(bool), None),
        of_tuned_head=of_tuned_head,
        at_chance=guessed.where(frame.chance.notna(), None),
        single_layer=frame.layer.map(lambda layer: isinstance(layer, int)).astype(bool),
    )


def is_share(metric: str) -> bool:
    """Whether a metric counts what came out right, or correlates with it: it can be compared, higher being better."""
    return METRICS[metric].unit in (SHARE, CORRELATION)


def compare_runs(
    runs: Sequence[Run], scores: pd.DataFrame, by: Sequence[str] = (), baseline: str | None = None
) -> Comparison:
    """Groups scores of labelled runs by language groups, averages them over languages and seeds, takes differences.

    Scores of single layers belong to a curve and are left out. Every language of a group weighs the same. A grouping
    that nobody asked for is left out where its one group equals the mean over all languages.

    Args:
        scores: as `score_frame` makes it.
        by: names of groupings to show; all that are possible if none are given.
        baseline: label of the encoder that the others are compared with; the study's, or the first one's if None.

    Raises:
        ConfigError: the baseline is no label, or a grouping cannot be made.
    """
    groupings, labels, group = known_groupings(runs), list(columns_of(runs)), related_languages(runs)
    check_groupings(by, groupings)
    of_studies = (
        label
        for name, study in studies_of(runs).items()
        for label in labels
        if study["baseline"] in (label, label.removesuffix(f" ({name})"))
    )
    chosen = baseline or next(of_studies, labels[0])
    if chosen not in labels:
        raise ConfigError(
            f"The baseline '{chosen}' is none of the compared recipes.{suggest(chosen, labels)} "
            f"They are {', '.join(labels)}."
        )
    measured = seed_values(scores)
    orders = {"metric": list(METRICS), "label": labels}
    measured = measured.assign(
        **{name: pd.Categorical(measured[name], order, ordered=True) for name, order in orders.items()}
    )
    names = dict.fromkeys([*(by or groupings), *OF_FINDING])
    frame = pd.concat(
        [_compare_by(name, measured, groupings[name], chosen, group) for name in names], ignore_index=True
    )
    frame = frame.astype(object).where(frame.notna(), None)
    groups = frame.groupby(["by", *KEY]).group.nunique()
    several = {*_ALWAYS, *groups[groups > 1].index.get_level_values("by")}
    by_metric = frame.groupby("metric")
    parts = [np.where(np.asarray(by_metric[part].transform("nunique")) > 1, frame[part], "") for part in KEY[1:]]
    apart = [", ".join(filter(None, row)) for row in zip(*parts, strict=True)]
    titles = [METRICS[metric].title for metric in frame.metric]
    frame["key"] = [*zip(*(frame[name] for name in KEY), strict=True)]
    frame["apart"] = [f" ({names})" if names else "" for names in apart]
    frame["title"] = [
        f"{title.replace(' (Tatoeba)', '')} ({names})" if names else title  # one of several test sets
        for title, names in zip(titles, apart, strict=True)
    ]
    return Comparison(tuple(labels), chosen, frame, tuple(by) or tuple(name for name in groupings if name in several))


def _compare_by(
    by: str, measured: pd.DataFrame, place_of: Callable[[str], Place], baseline: str, group: Grouping
) -> pd.DataFrame:
    # Where one label has languages and another only their mean, the mean stands for it among all languages.
    single = measured if by == "task" else measured.loc[measured.language != ALL_LANGUAGES]
    places = single.language.map({language: place_of(language) for language in single.language.unique()})
    placed = single.assign(first=single.place, place=[at for at, _ in places], group=[name for _, name in places])
    averaged = means(placed, [*_ROW, "label"]).astype(object).assign(by=by, baseline=baseline)
    return averaged.join(baseline_differences(averaged, baseline, group)).drop(columns=["place", "first", "block"])


def baseline_differences(averaged: pd.DataFrame, baseline: str, group: Grouping) -> pd.DataFrame:
    """The difference of each row of `means` from that of the baseline in the same measurement and group of languages.

    Returns:
        A row a row that has one, with its index: difference, low_95, high_95, undecided, difference_languages,
        difference_seeds, fewest_seeds, comparisons.
    """
    rows: dict[Any, tuple[Any, ...]] = {}
    for _, row in averaged.groupby(_ROW, observed=True):
        if is_share(row.metric.iloc[0]) and (row.label == baseline).any():
            arms = dict(zip(row.label, zip(row.index, row.block, strict=True), strict=True))
            _, base = arms.pop(baseline)
            for label, gap in differences_from({name: arm for name, (_, arm) in arms.items()}, base, group).items():
                ends, counts = gap.interval or (None, None), (gap.languages, gap.seeds, gap.fewest_seeds)
                rows[arms[label][0]] = (gap.estimate.value, *ends, gap.undecided(), *counts, gap.comparisons)
    return pd.DataFrame.from_dict(rows, "index", columns=[*_GAP, "comparisons"], dtype=object)
