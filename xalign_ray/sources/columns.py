"""Choice of the text columns of a table and their languages; conditions on other columns."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

from xalign_ray.config.sources import WHERE
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources.language_id import column_of, find_pair, language_of_name
from xalign_ray.sources.records import Kind, list_some
from xalign_ray.sources.tables import TEXT, SourceTable, one_line

MAX_NAME = 64  # characters of a column's name
LETTERS = 0.5  # of the characters of most texts
MAX_KINDS = 20  # of labels, such as parts of speech, that stand ten times or more each
_TAGS = """
    a abbr adj adjective adp adv adverb art article aux auxiliary cconj conj conjunction det determiner interj
    interjection intj n name nf nm nn noun num number numeral part particle phrase postp pr prefix prep preposition pron
    pronoun propn proper-noun punct sconj suffix sym v vb verb vi vt x
"""
_PARTS_OF_SPEECH = frozenset(_TAGS.split())
_ADDRESS = re.compile(r"\s*(https?://|www\.|\S+@\S+\.\w+\s*$)")
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def choose_columns(table: SourceTable, languages: Sequence[str], named: Sequence[str], kind: Kind) -> list[str]:
    """The columns of a document, or of the two texts of a pair or an entry, and of a condition on other columns.

    They are those that the source names; else `text` of a document; else those that are called by the languages, in any
    form (`rus`, `Russian`, `text_ru` for ru), or as a pair (source and target, the first language first); else, where a
    first row names nothing, the first two, if they are the ones that hold text.

    Args:
        named: one column or two; behind two a condition, perhaps empty, and columns of negatives, as a recipe has them.

    Raises:
        DataError: the table has no such columns, or it is not clear which they are.
    """
    if table.languages:
        return [*languages]
    wanted = [*named[:2]] or ([*languages] if len(languages) > 1 else [TEXT])
    others = [*(condition_of(where)[0] for where in filter(None, named[2:3])), *named[3:]]
    lists = [name for name, held in table.kinds.items() if held == "list"] if kind == "pairs" and named else []
    if not table.names:
        return [*wanted, *others]
    rows = table.rows or ()
    column_names = [column_of([*table.texts, *lists], name) for name in wanted]
    called = [table.names.index(name) for name in column_names if name]
    is_value = _is_repeated(table.names, rows[1] if len(rows) > 1 else (), called)  # of the second row too: no header
    takes_others = not named and len(languages) > 1
    if all(column_names) and len(set(column_names)) == len(column_names) and not is_value:
        chosen_names = column_names
    elif rows and all(_is_number(name, table) for name in wanted):
        chosen_names = wanted
    elif takes_others and len(pair := find_pair(table.names)) == 2 and {*pair} <= {*_texts(table)}:
        chosen_names = [table.names[index] for index in pair]
    elif (
        not takes_others
        or not rows
        or len(table.names) < 2
        or (called and not is_value)
        or all(map(language_of_name, table.names))
    ):
        raise DataError(_explain_missing(table, wanted, column_names) + " Its second row has that, too." * is_value)
    else:
        chosen_names = _first_two(table, kind, called)
        chosen_names = chosen_names[::-1] if [*table.said] == [*languages][::-1] else chosen_names
    for name in others:
        is_there = name in table.names or (chosen_names[0].isdecimal() and _is_number(name, table))
        if not is_there or (table.kinds.get(name, "number") != "number" and name not in lists):
            raise DataError(_explain_missing(table, [name], [""]))
    return [*chosen_names, *others]


def _is_number(name: str, table: SourceTable) -> bool:
    return name.isdecimal() and 0 < int(name) <= len(table.names)


def _explain_missing(table: SourceTable, wanted: Sequence[str], found: Sequence[str]) -> str:
    absent = [name for name, there in zip(wanted, found, strict=True) if not there] or [*wanted]
    missing = next((name for name in absent if not _is_number(name, table)), absent[-1])
    if table.rows is not None:
        shown = list_some([repr(name) for name in table.names if name])
        return f"{table.path} has no column '{missing}'; its first row has {shown or 'none'}."
    others = list_some([f"{name} ({kind})" for name, kind in table.kinds.items()])
    held = f"{list_some(table.texts) or 'none'}{'; of other kinds ' if others else ''}{others}"
    return f"{table.path} has no column of text '{missing}'; it has {held}."


def _texts(table: SourceTable) -> list[int]:
    """The places of the columns whose first cells, below the first row, are text in a language. No others are read."""
    places, rows = range(len(table.names)), (table.rows or [])[1:]
    if table.rows is None:
        places = [table.names.index(name) for name in table.texts]
        rows = [row.cells for row in table.first_rows(table.texts)[0] if not row.fault]
    columns = [[one_line(str(row[n] or "")) for row in rows if n < len(row)] for n in range(len(places))]
    return [index for index, cells in zip(places, columns, strict=True) if is_text(cells) or not any(cells)]


def _first_two(table: SourceTable, kind: Kind, repeated: Sequence[int]) -> list[str]:
    """The first two columns of a table without a header, by their numbers; others of a dictionary are notes.

    Args:
        repeated: columns in which each row has its languages.

    Raises:
        DataError: there is no text of two languages, or more columns of text than a pair's.
    """
    texts = [index for index in _texts(table) if index not in repeated]
    if texts[:2] != [0, 1] if kind == "entries" else len(table.names) > 2 and texts != [0, 1]:
        chosen = [*texts, len(table.names) - 1] if texts else [0, len(table.names) - 1]
        shown = ", ".join(f'"{index + 1}"' for index in chosen[:2])
        raise DataError(
            f"{table.path}: its first two columns do not hold {'terms' if kind == 'entries' else 'all texts'} of two "
            f"languages; the first row has {list_some([*map(repr, table.names)])}. Name the columns that do: "
            f"columns: [{shown}], or by this row."
        )
    return ["1", "2"]


def _is_repeated(names: Sequence[str], below: Sequence[str], places: Sequence[int]) -> bool:
    """Whether one of the names in these places of a first row stands in the second too: a row may name its
    languages."""
    return any(index < len(below) and names[index] == below[index].strip() for index in places)


def is_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a first row names columns: two languages or the two texts of a pair, or words far shorter than the rows'.

    Args:
        rows: those after it.
    """
    if any(len(name) > MAX_NAME for name in first) or not any(first):
        return False
    if is_named(first):
        codes = [index for index, name in enumerate(first) if language_of_name(name)]
        return not codes or not rows or not _is_repeated(first, rows[0], codes)  # each row may have its languages
    if not rows or any(len(name.split()) > 2 or not name[:1].isalpha() for name in first if name):
        return False
    columns = list(zip(*rows, strict=True))
    texts = [
        n for n, column in enumerate(columns) if first[n] and any(" " in cell or len(cell) > 20 for cell in column)
    ]
    lengths = {n: sorted(len(cell) for cell in columns[n])[len(rows) // 2] for n in texts}
    named = sum(bool(language_of_name(name)) for name in first)
    return bool(texts) and all(lengths[n] > (1 if named else 2) * len(first[n]) for n in texts)


def is_named(cells: Sequence[str]) -> bool:
    """Whether a first line is the header of pairs."""
    return sum(bool(language_of_name(cell)) for cell in cells) > 1 or bool(find_pair(cells))


def is_text(cells: Sequence[str]) -> bool:
    """Whether most cells are text in a language: letters that make different texts, no numbers, names, addresses, and
    neither parts of speech nor codes of languages or other labels over and over."""
    filled = [cell for cell in cells if cell]
    if not filled or (len(set(filled)) < len(filled) and all(map(language_of_name, set(filled)))):
        return False
    letters = [sum(map(_is_letter, cell)) > LETTERS * len(cell.replace(" ", "")) for cell in filled]
    codes = [" " not in cell and cell.isascii() and any(map(str.isdigit, cell)) for cell in filled]
    addresses = sum(bool(_ADDRESS.match(cell)) for cell in filled)
    kinds, one_word = len(set(filled)), not any(" " in cell for cell in filled)
    few = one_word and len(filled) > 20 and kinds <= max(2, min(len(filled) // 10, MAX_KINDS))
    tags = sum(cell.lower().strip(".").replace(" ", "-") in _PARTS_OF_SPEECH for cell in filled)
    is_label = few or (kinds < len(filled) < tags * 2)
    half = len(filled) / 2
    return sum(letters) > half and sum(codes) < half and addresses < half and not is_label


def _is_letter(character: str) -> bool:
    return character.isalpha() or not character.isascii()  # vowel signs are no letters to Python


def condition_of(where: str) -> tuple[str, str, str]:
    """The column, the sign and the value of a condition such as `label=1`.

    Raises:
      ConfigError: it is none.
    """
    if (match := re.fullmatch(WHERE, where)) is None:
        raise ConfigError(f"'{where}' is no condition on a column. Write it as label=1 or 'score>=0.8'.")
    column, sign, value = match.groups()
    return column.strip(), sign, value.strip()


def fulfils(value: Any, where: str) -> bool:
    """Whether a cell fulfils a condition: by numbers where both are, else by text."""
    _, sign, wanted = condition_of(where)
    left, other = number_of(value), number_of(wanted)
    if left is not None and other is not None:
        return _SIGNS[sign](left, other)
    return sign in ("=", "!=") and _SIGNS[sign](str(value).strip().casefold(), wanted.casefold())


def number_of(cell: Any) -> float | None:
    """The number in a cell, of true and false 1 and 0; None if it holds none."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return {"true": 1.0, "false": 0.0}.get(str(cell).strip().lower())
