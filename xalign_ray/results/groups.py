"""The groups of languages that scores are averaged over: all, each, by family, by Wikipedia's size, by dictionary."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from xalign_ray.config.explain import suggest
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.results.run import Run, columns_of
from xalign_ray.text.language_codes import INVENTED, OTHER, check_language, family_of, languages_of

EVERY = "all languages"
UNKNOWN_SIZE = "size not known"
WITH, SOME, WITHOUT, PIVOT = "dictionary", "dictionary in some runs only", "no dictionary", "English itself"
_PIVOT = "en"
_NEEDS = {
    "size": "give --sizes, a CSV file with language,megabytes.",
    "dictionary": "no compared run had a dictionary.",
}

Place = tuple[float, str]  # where a group stands in a table, and its name
Groupings = Mapping[str, Callable[[str], Place]]  # the group of a language or pair, by the grouping's name


def known_groupings(runs: Sequence[Run], sizes: Mapping[str, float]) -> Groupings:
    """The groupings that what is known allows.

    A pair with English belongs to its other language; any other pair to both.

    Args:
        runs: with labels.
        sizes: of Wikipedias in megabytes, by language; may be empty.
    """
    covered = [
        frozenset(code for run in own for source in run.sources("dictionaries") for code in source["languages"])
        for own in columns_of(runs).values()
    ]
    known: dict[str, Callable[[str], Place]] = {
        "task": lambda _: (0, EVERY),
        "language": lambda language: (0, language),
        "family": _family,
    }
    if sizes:
        known["size"] = partial(_size_group, sizes)
    if any(covered):
        known["dictionary"] = partial(_coverage, [languages for languages in covered if languages])
    return known


def check_groupings(by: Sequence[str], known: Groupings) -> None:
    """Raises ConfigError naming the first grouping that does not exist, or that nothing is known for."""
    every = list(dict.fromkeys([*known, *_NEEDS]))
    for name in by:
        if name not in every:
            raise ConfigError(f"There is no grouping '{name}'.{suggest(name, every)} Known: {', '.join(every)}.")
        if name not in known:
            raise ConfigError(f"Scores cannot be grouped by {name}: {_NEEDS[name]}")


def read_sizes(path: Path) -> dict[str, float]:
    """Sizes of Wikipedias from a CSV file with the columns `language` and `megabytes`.

    Raises:
        DataError: the file is missing, or a row of it is not a language and a number above 0; names the line.
    """
    try:
        rows = pd.read_csv(path, dtype=str, encoding="utf-8-sig", keep_default_na=False)
    except (OSError, ValueError) as error:  # pandas' own are ValueErrors
        raise DataError(f"{path} cannot be read ({error}); give a CSV file with language,megabytes.") from None
    if not {"language", "megabytes"} <= set(rows.columns):
        raise DataError(f"{path} must begin with the header language,megabytes.")
    sizes = {}
    for line, (language, megabytes) in enumerate(zip(rows.language, rows.megabytes, strict=True), start=2):
        try:
            code, size = check_language(language.strip()), float(megabytes)
        except (ValueError, ConfigError) as error:
            raise DataError(f"{path} line {line}: {error}") from None
        if not 0 < size < math.inf:
            raise DataError(f"{path} line {line}: a size must be above 0 MB, it is {megabytes}.")
        sizes[code] = size
    return sizes


def _family(language: str) -> Place:
    families = sorted({family_of(one) for one in other_languages(language)})
    return float(bool({INVENTED, OTHER} & set(families))), " and ".join(families)


def _size_group(sizes: Mapping[str, float], language: str) -> Place:
    """Wu and Dredze 2020, Table 1: round(log2(size in MB)); of two languages the smaller one decides."""
    known = [sizes.get(one) or sizes.get(one.split("-")[0], 0.0) for one in other_languages(language)]
    if not all(known):
        return math.inf, UNKNOWN_SIZE
    power = round(math.log2(min(known)))
    return power, f"{power} ({2 ** (power - 0.5):,.3g} to {2 ** (power + 0.5):,.3g} MB)"


def _coverage(dictionaries: Sequence[frozenset[str]], language: str) -> Place:
    languages = other_languages(language)
    if languages == (_PIVOT,):
        return 3, PIVOT  # the language that dictionaries have in common says nothing about what they are worth
    covered = [set(languages) <= known for known in dictionaries]
    return (0, WITH) if all(covered) else (1, SOME) if any(covered) else (2, WITHOUT)


def other_languages(language: str) -> tuple[str, ...]:
    """The languages that a score is about, without English where there is another."""
    languages = languages_of(language)
    return tuple(one for one in languages if one != _PIVOT) or languages
