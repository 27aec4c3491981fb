"""Columns of a table by its first rows: which are named, hold text and translate each other; conditions on others."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from xalign_ray.config.sources import WHERE, PairFormat
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources.csv_rows import TOO_FEW, TOO_MANY
from xalign_ray.sources.language_id import column_of, find_pair, is_negative, language_of_name
from xalign_ray.sources.records import Kind, list_reasons, list_some
from xalign_ray.sources.tables import MISSING, TEXT, SourceTable, one_line

MAX_NAME = 64  # characters of a column's name
READABLE = 0.5  # of the first rows; more must be
LETTERS = 0.5  # of the characters of most texts
MAX_KINDS = 20  # of labels, such as parts of speech, that stand ten times or more each
MANY = 8  # names that a message lists
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


@dataclass(frozen=True)
class FirstRows:
    """A source of pairs as far as it was looked at.

    Attributes:
        names: of its columns; numbers from 1 where it has no header; of line-aligned files and of TMX the languages.
        rows: the texts of each row, empty where there is none.
        is_whole: whether these are all rows.
        by_language: whether a column is a language and not a number: line-aligned files, TMX, OPUS.
        lists: the columns of lists that are not read; lists of answers and of negatives are read.
        form: the name of its format for users: CSV, Parquet, TMX.
    """

    paths: tuple[str, ...]
    names: tuple[str, ...]
    rows: list[tuple[str, ...]]
    is_whole: bool
    by_language: bool = False
    lists: tuple[str, ...] = ()
    has_header: bool = True
    format: PairFormat = "csv"  # this and the next where a file is looked at for a user
    form: str = ""

    @property
    def title(self) -> str:
        """Its file, for messages."""
        return self.paths[0]

    @property
    def listed(self) -> str:
        """Its columns, for messages."""
        lists = f"; lists, of which each text needs a row: {list_some(self.lists)}" if self.lists else ""
        return list_some(self.names) + lists

    def column(self, index: int) -> list[str]:
        """The texts of each row in a column."""
        return [row[index] for row in self.rows]

    @cached_property
    def texts(self) -> list[int]:
        """The places of the columns of text."""
        return [index for index in range(len(self.names)) if is_text(self.column(index))]

    @property
    def may_hold_pairs(self) -> bool:
        """Whether two columns hold text, or lists, which a message names; true where no row was read."""
        return not self.rows or self.by_language or len(self.texts) + len(self.lists) > 1

    @cached_property
    def codes(self) -> list[str]:
        """The language that each column is called by, or nothing.

        A code of three letters may be a word (`bar` is Bavarian): it is a code where a column of text is called by one
        of two letters, or each by a language. A column `id` is Indonesian if it holds sentences.
        """
        codes = [language_of_name(name) for name in self.names]
        if self.by_language:
            return codes
        codes = [
            "" if code == "id" and sum(" " in text for text in self.column(index)) * 2 < len(self.rows) else code
            for index, code in enumerate(codes)
        ]
        letters = [len(code.partition("-")[0]) for code in codes]
        is_sure = all(codes[index] for index in self.texts) or any(letters[index] == 2 for index in self.texts)
        return [code if is_sure or count != 3 else "" for code, count in zip(codes, letters, strict=True)]

    def numbers(self, index: int) -> list[float]:
        """The distinct numbers in a column, in order; none where a cell holds something else."""
        numbers = [*map(number_of, filter(None, self.column(index)))]
        return [] if None in numbers else sorted({*numbers})  # pyright: ignore


def first_rows_of(table: SourceTable, kind: Kind = "pairs") -> FirstRows:
    """The first rows of a table, below its header if it has one.

    Raises:
        DataError: half of its rows cannot be read, it has no column of text, or two columns have one name.
    """
    names, lists, has_header = [*table.names], list[str](), True
    if table.languages:
        names = table.languages()
    elif table.rows is not None:
        width = len(names)
        below = [[*row, *[""] * (width - len(row))] for row in table.rows[1:] if len(row) <= width]
        has_header = is_header(names, below, kind)
        names = names if has_header else [str(number) for number in range(1, width + 1)]
        if double := next((name for name, count in Counter(filter(None, names)).items() if count > 1), ""):
            raise DataError(f"{table.path}: two columns are called '{double}'. Rename one of them.")
    else:
        names = [name for name in names if table.kinds.get(name, "number") == "number"]
        lists = [name for name, kind_of_cells in table.kinds.items() if kind_of_cells == "list"]
        places = {*find_pair([*names, *lists])}
        read = [name for index, name in enumerate(lists, len(names)) if index in places or is_negative(name)]
        names, lists = [*names, *read], [name for name in lists if name not in read]
    if not names or not (table.languages or table.texts or lists):
        held = list_some([f"{name} ({kind_of_cells})" for name, kind_of_cells in table.kinds.items()])
        raise DataError(
            f"{table.path} has no column of text; it has {held or 'none'}. Write a row with a text of each language."
        )
    rows, is_whole = table.first_rows(names)
    texts = [tuple(map(_cell_text, row.cells)) for row in rows if not row.fault]
    if rows and len(texts) <= READABLE * len(rows):
        count = f"only {len(texts):,} of {len(rows):,} rows" if texts else "no row"
        faults = Counter(row.fault for row in rows if row.fault)
        hint = " Quote fields that hold the delimiter, or write it as TSV." if {TOO_FEW, TOO_MANY} & {*faults} else ""
        where = " below its first" if table.rows and has_header else ""
        raise DataError(f"{table.path}: {count}{where} can be read ({list_reasons(faults)}).{hint}")
    by_language = table.languages is not None and "source" not in names
    return FirstRows((table.path,), tuple(names), texts, is_whole, by_language, tuple(lists), has_header)


def _cell_text(cell: object) -> str:
    """The text of a cell, or the first of a list, on one line; none where a program wrote that there is no value."""
    cell = next(iter(cell), None) if isinstance(cell, list) else cell
    text = "" if cell is None or isinstance(cell, list | dict) else one_line(str(cell))
    return "" if text in MISSING else text


def is_header(first: Sequence[str], rows: Sequence[Sequence[str]] = (), kind: Kind = "pairs") -> bool:
    """Whether a first row names columns: two languages or the two texts of a pair, or, above sentences, words far
    shorter than these.

    Args:
        rows: those after it.
    """
    if any(len(name) > MAX_NAME for name in first) or not any(first):
        return False
    codes = [index for index, name in enumerate(first) if language_of_name(name)]
    if len(codes) > 1 or find_pair(first):
        return not any(row[index] == first[index] for row in rows[:1] for index in codes)  # each may name its languages
    if kind == "entries" or not rows or any(len(name.split()) > 2 or not name[:1].isalpha() for name in first if name):
        return False
    columns = [column for column in zip(first, *rows, strict=True) if column[0]]
    long = [(name, cells) for name, *cells in columns if any(" " in cell or len(cell) > 20 for cell in cells)]
    return bool(long) and all(
        sorted(map(len, cells))[len(rows) // 2] > (1 if codes else 2) * len(name) for name, cells in long
    )


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


def choose_columns(first: FirstRows, languages: Sequence[str] = (), kind: Kind = "pairs") -> list[int]:
    """The places of the columns that translate each other.

    They are those that are called by languages, or as a pair (source and target), or the only two of text; of a
    dictionary the first two: others are notes.

    Args:
        languages: that are wanted, where they are known.

    Raises:
        ConfigError: it is not clear; names the key that settles it.
    """
    texts = [index for index in first.texts if not is_negative(first.names[index])]
    if first.by_language:
        return texts
    called: list[int] = []
    for index, code in enumerate(first.codes):
        is_empty = not any(first.column(index))
        if code and is_empty and (not languages or code in languages):
            raise ConfigError(
                f"{first.title}: column {first.names[index]} is empty in the first {len(first.rows):,} rows. Fill it, "
                "or name two others with --languages or --columns."
            )
        called += [index] if code and index in texts else []
    pair = find_pair(first.names)
    if pair and {*pair} <= {*texts} and len({*called} - {*pair}) < 2:
        return pair
    if len(called) > 1:
        return called
    if kind == "entries" and texts[:2] == [0, 1]:
        return [0, 1]
    if kind == "entries" or len(texts) not in (2, max(2, len(languages))):
        held = list_names([first.names[index] for index in texts]) if texts else "no column"
        raise ConfigError(
            f"{first.title}: {held} hold{'s' * (len(texts) < 2)} text (columns: {first.listed}), and pairs need two. "
            "Name them with --columns."
        )
    return texts


def list_names(names: Sequence[str]) -> str:
    """Names as a sentence lists them."""
    return list_some(names) if len(names) > MANY else " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def resolve_columns(table: SourceTable, languages: Sequence[str], named: Sequence[str], kind: Kind) -> list[str]:
    """The columns of a document, or of the two texts of a pair or an entry, and of a condition on other columns.

    The source names them; else it is `text` of a document, or the columns that are called by the languages, in any form
    (`rus`, `Russian`, `text_ru` for ru); else choose_columns finds them, the first language first.

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
    keys = [column_of([*table.texts, *lists], name) for name in wanted]
    called = [table.names.index(name) for name in keys if name]
    second = next(iter((table.rows or ())[1:]), ())  # which has the same languages where each row names its own
    is_value = any(index < len(second) and table.names[index] == second[index] for index in called)
    if not all(keys) or len({*keys}) < len(keys) or is_value:
        if table.rows and all(_is_number(name, table) for name in wanted):
            keys = wanted
        elif named or len(languages) < 2 or (called and not is_value and not find_pair(table.names)):
            raise DataError(_explain_missing(table, wanted, keys) + " Its second row has that, too." * is_value)
        elif kind == "pairs" and table.rows and len(table.names) == 2 and not is_header(table.names):
            keys = ["1", "2"]
        else:
            first = first_rows_of(table, kind)
            try:
                places = choose_columns(first, languages, kind)
            except ConfigError:
                places = []
            if not places or (first.has_header and places != find_pair(first.names)):
                hint = ' Name two: columns: ["1", "3"], or by this row.' if table.rows and table.names[1:] else ""
                raise DataError(_explain_missing(table, wanted, keys) + hint)
            is_turned = not first.has_header and [*table.said] == [*languages][::-1]
            keys = [first.names[index] for index in (places[::-1] if is_turned else places)]
    for name in others:
        is_there = name in table.names or (keys[0].isdecimal() and _is_number(name, table))
        if not is_there or (table.kinds.get(name, "number") != "number" and name not in lists):
            raise DataError(_explain_missing(table, [name], [""]))
    return [*keys, *others]


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
