"""Scores of runs: the one mean over fine-tuning runs, seeds and languages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from xalign_ray.results.difference import RUN, Array, guess_variance, is_at_chance, macro_interval

ALL_LANGUAGES = "all"  # the language of a mean over languages
KEY = ["metric", "split", "layer", "pooling"]  # identity of a measurement, without its language
SCORED = ["label", *KEY, "language"]
FINE_TUNING, PRETRAINING = "fine-tuning", "pretraining"  # kinds of seeds; RUN is one whose seed is not known
_SPLITS = ("test", "tatoeba", "dev")  # that papers print come first

MEAN = ["block", "mean", "standard_deviation", "values", "languages", "seeds"]
MEAN += ["n", "chance", "at_chance", "of_test", "left_out"]
_FACTS = {"value": "mean", "chance": "first", "n": "first", "step": "max", "place": "min"}  # of one seed's scores

Block = pd.DataFrame  # [languages, seeds] values of one label and measurement, all there, names sorted
EMPTY = Block(dtype=float)


def average(block: Block | Array) -> tuple[float, float | None]:
    """Mean over languages, then seeds; sample standard deviation over seeds, None of one."""
    of_seeds = over_languages(block)
    return float(of_seeds.mean()), float(of_seeds.std(ddof=1)) if len(of_seeds) > 1 else None


def over_languages(values: ArrayLike) -> Any:
    """The mean over the first axis: every language weighs the same, however many things were scored in it (XTREME)."""
    return np.asarray(values, float).mean(axis=0)


def over_seeds(scores: Sequence[tuple[int | None, float]]) -> float:
    """The mean of fine-tuning runs, each with the pretraining seed of its encoder: of each encoder, then of all."""
    frame = pd.DataFrame(scores, columns=["replicate", "value"])
    return float(frame.groupby("replicate", dropna=False).value.mean().mean())


def over_rows(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    """The mean of a number in rows that have a language each: of each language, then of all."""
    return float(over_languages(np.asarray(pd.DataFrame(rows).groupby("language")[name].mean())))


def seed_values(scores: pd.DataFrame, of_layers: bool = False) -> pd.DataFrame:
    """Scores averaged to one value a label, measurement, language and seed: of single layers, or all others.

    A given mean over languages counts only where single languages are not scored.
    Where a run has a score more than once, the newest pretraining step counts, and scores that differ in their
    fine-tuning seed only are averaged before runs are. A seed is that of pretraining, or of fine-tuning where one
    encoder was fine-tuned with several. Test sets of one name that differ in size or content become splits of their
    own: `test, n 100` is never compared with `test, n 90`.

    Args:
        scores: a row a score: label, KEY, language, value, chance, n, test_set (a hash, None where it is not known),
            seed, step, run, replicate (the pretraining seed, or the run where it is not known) and of_tuned_head
            (whether the seed is one of fine-tuning).
        of_layers: whether to average the scores of single layers, which belong to a curve.

    Returns:
        A row a value: label, KEY, language, seed (kind and number: "pretraining 0"), value, chance (NaN where there is
        none), n, step, and place: the order of measurements, test before development sets, then as they were written.
        A layer or pooling that has no meaning is "".
    """
    scores = scores.loc[scores.layer.map(lambda layer: isinstance(layer, int)).astype(bool) == of_layers]
    is_single = scores.language != ALL_LANGUAGES
    has_single = is_single.groupby([scores[name] for name in ("label", *KEY)], dropna=False).transform("any")
    scores = scores.loc[is_single | ~has_single]
    frame = scores.assign(
        tuned=scores.seed.where(scores.seed.notna(), scores.run),
        step=scores.step.map(lambda step: 0 if pd.isna(step) else step),
        known=scores.replicate != scores.run,
        place=np.arange(len(scores)),
        **{name: scores[name].where(scores[name].notna(), "") for name in ("split", "layer", "pooling")},
        **{name: scores[name].astype(float) for name in ("value", "chance", "n")},
    )
    frame["n"] = frame.n.where(frame.n > 0)  # 0 is not known: of other programs
    # Runs of one label and seed that are of a pair of languages each have steps of their own.
    newest = frame.groupby([*SCORED, "replicate", "run"]).step.transform("max")
    frame = _split_by_test_set(frame.loc[frame.step == newest])
    frame["single"] = frame.groupby([*SCORED, "replicate"]).tuned.transform("nunique") == 1
    by_cell = frame.groupby(SCORED)
    encoders, single = by_cell.replicate.transform("nunique"), by_cell.single.transform("all")
    distinct = ~by_cell.known.transform("any") & single & (by_cell.tuned.transform("nunique") == encoders)
    by_tuned = distinct | (~single & (encoders == 1))
    numbered = frame.known.where(~by_tuned, frame.seed.notna())
    kind = np.select([~numbered, by_tuned & frame.of_tuned_head.astype(bool)], [RUN, FINE_TUNING], PRETRAINING)
    numbers = frame.tuned.where(by_tuned, frame.replicate)
    frame["seed"] = [f"{of} {number}" for of, number in zip(kind, numbers, strict=True)]
    frame["chance"] = by_cell.chance.transform("mean")
    values = frame.groupby([*SCORED, "seed"]).agg(**{name: (name, how) for name, how in _FACTS.items()})
    values = values.reset_index()
    return values.assign(place=values.groupby(KEY).place.transform("min"))


def headline_values(scores: pd.DataFrame) -> pd.DataFrame:
    """The `seed_values` of one measurement of each label and metric: the first in order of `place`."""
    measured = seed_values(scores)
    first = measured.sort_values("place", kind="stable").drop_duplicates(["label", "metric"])
    return measured.merge(first[["label", *KEY]])


def means(measured: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """A row a group, such as one label and metric, in the order that groups sort in: the only mean of scores.

    It is over the languages that all its seeds have: of all such blocks, the one with the most values, then the most
    seeds. Every language weighs the same, and so does every seed.

    Args:
        measured: as `seed_values` returns it.
        by: names of columns.

    Returns:
        `by`, block, mean, standard_deviation (over seeds, None of one), values (of each seed), languages (named in one
        string), seeds (their number), n (things scored in all languages, None where it is not known of each), chance
        (None where there is none), at_chance (None where chance is not known), of_test (the interval of the mean over
        other test sentences, None where it cannot be) and left_out (values in languages that not all seeds have, or of
        other seeds).
    """
    columns = [measured[name].to_numpy() for name in ("language", "seed", "value", "n", "chance")]
    groups = measured.groupby(list(by), observed=True)
    rows = [
        (*(key if isinstance(key, tuple) else (key,)), *_mean(*(column[groups.indices[key]] for column in columns)))
        for key in groups.size().index
    ]
    return pd.DataFrame(rows, columns=[*by, *MEAN])


def _mean(languages: Any, seeds: Any, values: Array, n: Array, chance: Array) -> tuple[Any, ...]:
    rows, columns = sorted(set(languages)), sorted(set(seeds), key=lambda seed: (len(seed), seed))
    at = ([rows.index(item) for item in languages], [columns.index(item) for item in seeds])
    table, facts = np.full((len(rows), len(columns)), np.nan), np.full((len(rows), 2), np.nan)
    table[at] = values
    facts[at[0]] = np.stack([n, chance], axis=1)
    has_value = ~np.isnan(table)
    patterns = np.unique(has_value, axis=0)
    complete = [(has_value >= there).all(axis=1) for there in patterns]  # languages that have all seeds of a pattern
    best = max(
        range(len(patterns)), key=lambda item: (complete[item].sum() * patterns[item].sum(), patterns[item].sum(), item)
    )
    best_rows, there = complete[best], patterns[best]
    table, (sizes, chances) = table[best_rows][:, there], facts[best_rows].T
    block = Block(table, list(compress(rows, best_rows)), list(compress(columns, there)))
    mean, deviation = average(table)
    total = None if np.isnan(sizes).any() else int(sizes.sum())
    guessed = None if np.isnan(chances).all() else float(np.nanmean(chances))
    variance = np.nansum(guess_variance(chances, sizes)) / len(block) ** 2  # of a mean over languages
    at_chance = None if guessed is None else bool(is_at_chance(mean, guessed, variance))
    is_share = total and ((table >= 0) & (table <= 1)).all()
    of_test = macro_interval(over_languages(table.T), sizes) if is_share else None
    return (
        *(block, mean, deviation, over_languages(table).tolist(), " ".join(compress(rows, best_rows)), table.shape[1]),
        *(total, guessed, at_chance, of_test, int(has_value.sum() - table.size)),
    )


def _split_by_test_set(frame: pd.DataFrame) -> pd.DataFrame:
    """Names splits by size, then by content, where scores of one measurement and language are of several test sets.

    A score whose content is not known counts as of the only one that is.
    """
    ranks = frame.split.map({split: rank for rank, split in enumerate(_SPLITS)}).fillna(len(_SPLITS)).astype(int)
    frame = frame.assign(place=frame.place + len(frame) * ranks).reset_index(drop=True)
    for fact, say in (("n", _say_sizes), ("test_set", _say_contents)):
        frame["several"] = np.asarray(frame.groupby([*KEY, "language"])[fact].transform("nunique")) > 1
        for _, rows in frame.loc[frame.groupby(KEY).several.transform("any")].groupby(KEY):
            for name, places in _test_sets(rows, fact, say).items():
                frame.loc[places, "split"] += f", {name}"
    return frame


def _test_sets(rows: pd.DataFrame, fact: str, say: Callable[[Sequence[Any]], str]) -> dict[str, list[int]]:
    """Where the rows of each test set of one measurement stand, by its name.

    Test sets of several languages are one if the same encoders took them: of words that a dictionary leaves out, each
    language has another number. The only test set of a language needs no match, unless that brings it to others.
    """
    sets: dict[tuple[Any, int], list[tuple[Any, pd.DataFrame]]] = defaultdict(list)
    counts: Counter[Any] = Counter()
    for asked, scores in rows.groupby(["language", fact], dropna=False):
        language, value = tuple(asked)  # type: ignore[arg-type]
        takers = frozenset(scores.label)
        sets[takers, counts[takers, language]].append((value, scores))
        counts[takers, language] += 1
    named: dict[str, list[int]] = {}
    for parts in sets.values():
        if any(scores.several.any() for _, scores in parts):
            name = say([value for value, _ in parts])
            name += f" ({sum(taken_name.startswith(name) for taken_name in named) + 1})" if name in named else ""
            named[name] = [index for _, scores in parts for index in scores.index]
    return named


def _say_sizes(sizes: Sequence[float]) -> str:
    if np.isnan(sizes).any():
        return "not known"
    return f"n {min(sizes):,.0f}" + (f" to {max(sizes):,.0f}" if min(sizes) < max(sizes) else "")


def _say_contents(hashes: Sequence[Any]) -> str:
    return "not known" if pd.isna(hashes[0]) else f"content {hashes[0]:.6}"


def as_csv(frame: pd.DataFrame) -> str:
    """A frame as a report writes it."""
    return frame.to_csv(index=False, lineterminator="\n")
