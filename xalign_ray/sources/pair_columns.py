"""Chooses the columns of a table that translate each other, and their languages; asks where this is not clear."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from xalign_ray.config.language_codes import check_language
from xalign_ray.errors import ConfigError
from xalign_ray.sources.column_languages import (
    find_pair,
    language_of_name,
    languages_of_texts,
    without_region,
)
from xalign_ray.sources.first_rows import FirstRows
from xalign_ray.sources.language_id import PACKAGE, is_alike, is_installed

IDENTIFIED = 300  # texts of a column by which its language is found
MAX_EQUAL = 0.5  # of the rows: those whose two texts are the same
LETTERS = 0.5  # of the characters of most texts
_ADDRESS = re.compile(r"\s*(https?://|www\.|\S+@\S+\.\w+\s*$)")


@dataclass(frozen=True)
class Chosen:
    """The columns of a source that translate each other, two or more, as places, and their languages."""

    columns: list[int]
    languages: list[str]


def choose_columns(table: FirstRows, languages: Sequence[str] = (), columns: Sequence[str] = ()) -> Chosen:
    """The columns that hold translations: those that are named, or called by languages, or the only two of text.

    Args:
        languages: of the columns, where they are said; in the columns' order where these do not show it.
        columns: their names, where they are said.

    Raises:
        ConfigError: it is not clear; names the key that settles it.
    """
    codes = [check_language(code) for code in languages]
    if table.rows:
        places = _named(table, columns) if columns else _candidates(table, codes)
    else:
        places = list(range(len(table.names)))
    found = _languages(table, places, codes)
    _check(table, found, is_asked=bool(codes))
    return found


def _named(table: FirstRows, columns: Sequence[str]) -> list[int]:
    if len(columns) < 2 or len(set(columns)) < len(columns):
        raise ConfigError(f"--columns names {', '.join(columns)}; name two different columns, such as source,target.")
    for column in columns:
        if column not in table.names:
            raise ConfigError(f"{table.title} has no column '{column}'; its columns are {', '.join(table.names)}.")
    return [table.names.index(column) for column in columns]


def _candidates(table: FirstRows, codes: Sequence[str]) -> list[int]:
    """Columns of text that a name says to be in a language or of a pair, or all columns of text if they are two."""
    texts = [n for n in range(len(table.names)) if is_text([row[n] for row in table.rows])]
    if table.by_language:
        return texts
    named = [n for n in range(len(table.names)) if _code_of(table, n) and _is_said(table, n, texts)]
    if codes:
        named = [n for n in named if any(row[n] for row in table.rows) or _code_of(table, n) in codes]
    if empty := [table.names[n] for n in named if not any(row[n] for row in table.rows)]:
        raise ConfigError(
            f"{table.title}: column {empty[0]} is empty in the first {len(table.rows):,} rows. Fill it, or name two "
            "others with --languages or --columns."
        )
    pair = [n for n in find_pair(table.names) if n in texts]
    if len(pair) == 2 and len([n for n in named if n not in pair]) < 2:
        return pair
    if len(named) > 1:
        return named
    if len(texts) < 2:
        held = f"only column {table.names[texts[0]]} holds text" if texts else "no column holds text"
        raise ConfigError(
            f"{table.title}: {held} (columns: {', '.join(table.names)}), and pairs need two. Name them with --columns."
        )
    if len(texts) > 2 and len(texts) != len(codes):
        raise ConfigError(
            f"{table.title}: columns {_listed([table.names[n] for n in texts])} hold text. Say which two translate "
            f"each other: --columns {table.names[texts[0]]},{table.names[texts[1]]}"
        )
    return texts


def _code_of(table: FirstRows, place: int) -> str:
    """The language that a column is called by; not one of three letters, as many words have, where its texts differ."""
    code = language_of_name(table.names[place])
    if code == "id" and sum(" " in row[place] for row in table.rows) * 2 < len(table.rows):
        return ""  # not Indonesian
    if len(code.partition("-")[0]) < 3 or table.format in ("tmx", "xliff", "po", "opus"):
        return code
    (found,) = languages_of_texts([_texts(table, place)])
    return code if not found or is_alike(found, code) else ""


def _is_said(table: FirstRows, place: int, texts: Sequence[int]) -> bool:
    """Whether a column that is called by a language is one: it holds text, or nothing."""
    return place in texts or not any(row[place] for row in table.rows)


def is_text(cells: Sequence[str]) -> bool:
    """Whether most cells are text in a language: letters that make different texts, no numbers, names or addresses."""
    filled = [cell for cell in cells if cell]
    if not filled:
        return False
    letters = [sum(map(_is_letter, cell)) > LETTERS * len(cell.replace(" ", "")) for cell in filled]
    codes = [" " not in cell and cell.isascii() and any(map(str.isdigit, cell)) for cell in filled]
    addresses = sum(bool(_ADDRESS.match(cell)) for cell in filled)
    few = len(filled) > 20 and len(set(filled)) <= max(2, len(filled) // 50) and not any(" " in cell for cell in filled)
    return sum(letters) * 2 > len(filled) and sum(codes) * 2 < len(filled) and addresses * 2 < len(filled) and not few


def _is_letter(character: str) -> bool:
    return character.isalpha() or not character.isascii()  # vowel signs are no letters to Python


def _languages(table: FirstRows, places: list[int], codes: Sequence[str]) -> Chosen:
    """The languages of the columns, of which those that are asked for are kept."""
    names = [table.names[n] for n in places]
    paired = bool(find_pair(names)) and len(places) == 2 and not table.by_language
    by_name = ["" if paired else _code_of(table, n) for n in places]
    bare = [without_region(code) if code else "" for code in by_name]
    by_name = bare if len(set(bare)) == len(bare) else by_name
    if codes and all(code in by_name or code in bare for code in codes):
        kept = [(by_name if code in by_name else bare).index(code) for code in codes]
        return Chosen([places[n] for n in kept], list(codes))
    known = by_name
    if not all(by_name):
        by_text = languages_of_texts([_texts(table, n) for n in places])
        known = [name or text for name, text in zip(by_name, by_text, strict=True)]
    if codes and len(codes) == len(places) and not any(by_name):
        return Chosen(places, known if sorted(known) == sorted(codes) else list(codes))
    if codes:
        there = ", ".join(f"{name} ({code})" if code != name else name for name, code in zip(names, known, strict=True))
        missing = next((code for code in codes if code not in known), codes[0])
        if table.by_language:
            raise ConfigError(f"{table.title} has no text in '{missing}'; its languages are {there}.")
        raise ConfigError(
            f"{table.title} has no column in '{missing}'; it has {there}. Name the columns with --columns."
        )
    if not all(known):
        unknown = [name for name, code in zip(names, known, strict=True) if not code]
        hint = "" if is_installed() else f", or install {PACKAGE} (pip install 'xalign-ray[langid]')"
        raise ConfigError(
            f"{table.title}: the language of {_columns(unknown)} cannot be told by name or text. Say the languages of "
            f"{_listed(names)} in this order: --languages en,de{hint}."
        )
    if len(set(known)) < len(known):
        double = next(code for code in known if known.count(code) > 1)
        alike = [name for name, code in zip(names, known, strict=True) if code == double]
        raise ConfigError(
            f"{table.title}: columns {_listed(alike)} are both '{double}'. Name two of different languages with "
            f"--columns{'' if any(by_name) else f', or say the languages of {_listed(names)}: --languages en,de'}."
        )
    return Chosen(places, known)


def _check(table: FirstRows, found: Chosen, is_asked: bool) -> None:
    """Refuses texts that are copies of each other, and columns whose names are swapped."""
    if len(found.columns) < 2:
        raise ConfigError(
            f"{table.title} holds one language only ({', '.join(found.languages) or 'none'}); pairs need two."
        )
    if not table.rows:
        if table.format != "opus":
            raise ConfigError(f"{table.title} has no rows below its header ({', '.join(table.names)}).")
        return
    first, *others = found.columns
    for other in others:
        rows = [(row[first], row[other]) for row in table.rows if row[first] and row[other]]
        names = f"{table.names[first]} and {table.names[other]}"
        if not rows:
            if len(found.columns) == 2:
                raise ConfigError(f"{table.title}: no row of the first {len(table.rows):,} has both {names}.")
            continue
        if (equal := sum(a.casefold() == b.casefold() for a, b in rows)) > MAX_EQUAL * len(rows):
            raise ConfigError(
                f"{table.title}: {names} are the same in {equal:,} of {len(rows):,} rows, so one is no translation of "
                "the other. Name other columns with --columns, or give another file."
            )
    if is_asked:
        return
    texts = languages_of_texts([_texts(table, n) for n in found.columns])
    swapped = [n for n, code in enumerate(texts) if code and code != found.languages[n] and code in found.languages]
    if len(swapped) > 1 and len(found.columns) == 2:
        raise ConfigError(
            f"{table.title}: {table.names[found.columns[0]]} holds '{texts[0]}' and {table.names[found.columns[1]]} "
            f"holds '{texts[1]}', which is the other way round. Correct the names; with --languages "
            f"{','.join(found.languages)} they are taken as they are."
        )


def _texts(table: FirstRows, place: int) -> list[str]:
    return [row[place] for row in table.rows if row[place]][:IDENTIFIED]


def _columns(names: Sequence[str]) -> str:
    return f"column {names[0]}" if len(names) == 1 else f"columns {_listed(names)}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
