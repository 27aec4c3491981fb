"""The groups of languages that scores are averaged over: all, each, by family, by Wikipedia's size, by dictionary."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from xalign_ray.config.explain import suggest
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.text.language_codes import check_language
from xalign_ray.text.language_families import INVENTED, OTHER, family_of, languages_of

EVERY = "all languages"
UNKNOWN_SIZE = "size not known"
WITH, SOME, WITHOUT, PIVOT = "dictionary", "dictionary in some runs only", "no dictionary", "English itself"
_PIVOT = "en"


@dataclass(frozen=True)
class Background:
    """What is known beside the scores.

    Attributes:
        sizes: of each language's Wikipedia, in megabytes.
        dictionaries: by label, the languages that its training had a dictionary for; none where it had none.
        seeds: the pretraining seed of each run, by the run's name: which runs of two labels belong together.
    """

    sizes: Mapping[str, float] = field(default_factory=dict)
    dictionaries: Mapping[str, frozenset[str]] = field(default_factory=dict)
    seeds: Mapping[str, int] = field(default_factory=dict)


def known_groupings(background: Background) -> list[str]:
    """The groupings that what is known allows."""
    return [name for name, missing in _MISSING.items() if not missing(background)]


def check_groupings(by: Sequence[str], background: Background) -> None:
    """Refuses groupings that do not exist, or that nothing is known for.

    Raises:
        ConfigError: names the grouping, and the nearest one or what it needs.
    """
    for name in by:
        if name not in _MISSING:
            raise ConfigError(f"There is no grouping '{name}'.{suggest(name, _MISSING)} Known: {', '.join(_MISSING)}.")
        if missing := _MISSING[name](background):
            raise ConfigError(f"Scores cannot be grouped by {name}: {missing}")


def group_languages(by: str, languages: Iterable[str], background: Background) -> dict[str, list[str]]:
    """Languages and pairs by group, the groups in the order of a table.

    A pair with English belongs to its other language; any other pair to both.
    """
    place_of = _PLACES[by]
    groups: dict[tuple[float, str], list[str]] = {}
    for language in sorted(languages):
        groups.setdefault(place_of(language, background), []).append(language)
    return {name: groups[order, name] for order, name in sorted(groups)}


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
    pairs = zip(rows.language, rows.megabytes, strict=True)
    return dict(_size(path, line, *pair) for line, pair in enumerate(pairs, start=2))


def _size(path: Path, line: int, language: str, megabytes: str) -> tuple[str, float]:
    try:
        code, size = check_language(language.strip()), float(megabytes)
    except (ValueError, ConfigError) as error:
        raise DataError(f"{path} line {line}: {error}") from None
    if not 0 < size < math.inf:
        raise DataError(f"{path} line {line}: a size must be above 0 MB, it is {megabytes}.")
    return code, size


Place = tuple[float, str]  # where a group stands in a table, and its name


def _family(languages: Sequence[str]) -> Place:
    families = sorted({family_of(language) for language in languages})
    return float(bool({INVENTED, OTHER} & set(families))), " and ".join(families)


def _size_group(languages: Sequence[str], sizes: Mapping[str, float]) -> Place:
    """Wu and Dredze 2020, Table 1: round(log2(size in MB)); of two languages the smaller one decides."""
    known = [sizes.get(language) or sizes.get(language.split("-")[0]) for language in languages]
    if None in known:
        return math.inf, UNKNOWN_SIZE
    power = round(math.log2(min(size for size in known if size is not None)))
    return power, f"{power} ({2 ** (power - 0.5):,.3g} to {2 ** (power + 0.5):,.3g} MB)"


def _coverage(languages: Sequence[str], dictionaries: Iterable[frozenset[str]]) -> Place:
    if languages == (_PIVOT,):
        return 3, PIVOT  # the language that dictionaries have in common says nothing about what they are worth
    covered = [set(languages) <= known for known in dictionaries if known]
    return (0, WITH) if all(covered) else (1, SOME) if any(covered) else (2, WITHOUT)


_PLACES: dict[str, Callable[[str, Background], Place]] = {
    "task": lambda *_: (0, EVERY),
    "language": lambda language, _: (0, language),
    "family": lambda language, _: _family(_other_languages(language)),
    "size": lambda language, known: _size_group(_other_languages(language), known.sizes),
    "dictionary": lambda language, known: _coverage(_other_languages(language), known.dictionaries.values()),
}

# What a grouping lacks, in words; empty where it lacks nothing.
_MISSING: dict[str, Callable[[Background], str]] = {
    "task": lambda _: "",
    "language": lambda _: "",
    "family": lambda _: "",
    "size": lambda known: "" if known.sizes else "give --sizes, a CSV file with language,megabytes.",
    "dictionary": lambda known: "" if any(known.dictionaries.values()) else "no compared run had a dictionary.",
}


def _other_languages(language: str) -> tuple[str, ...]:
    languages = languages_of(language)
    return tuple(one for one in languages if one != _PIVOT) or languages
