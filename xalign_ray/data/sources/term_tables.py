"""Reads dictionaries that are tables: MUSE's lines, TSV, CSV; two terms a row, and columns that are not read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from xalign_ray.data.sources.column_languages import language_of_name, without_region
from xalign_ray.data.sources.csv_pairs import csv_rows, find_delimiter
from xalign_ray.data.sources.open import Line, number_lines
from xalign_ray.data.sources.pair_columns import is_text
from xalign_ray.data.sources.parts import Part
from xalign_ray.data.sources.records import BadRow, Noted, Record, Skipped
from xalign_ray.data.sources.term_files import NOTES, ONE_TERM, entries, files_of
from xalign_ray.data.sources.tsv import find_columns
from xalign_ray.data.sources.workbook import OTHER_SHEETS, open_rows
from xalign_ray.errors import DataError
from xalign_ray.text.words import BLANKS

# Names of the columns of a header whose terms translate each other, in lower case.
_HEADS = ({"source", "src", "term", "word", "headword", "l1"}, {"target", "tgt", "trg", "translation", "l2"})
HEADER = "header"
LOOKED_AT = 200  # lines by which the delimiter is found
MORE = "dictionary line has more than two columns"


def read_muse(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Entries of a dictionary, in the order of the file (MUSE: by frequency of the source word).

    Words are parted by any white space, as MUSE's own code does; where a line has a tab, by that alone, so that a term
    may be of several words. Punctuation around a word is taken off and counted: the words of a text have none, so that
    it would never be found.
    """
    for file in files_of(part.paths[0]):
        for line in number_lines(file, file.path):
            words = muse_words(line.text)
            if line.fault:
                yield BadRow(file.path, line.number, line.fault)
            elif not words:
                yield Skipped("blank line")
            elif len(words) != 2:
                yield BadRow(file.path, line.number, ONE_TERM if len(words) == 1 else MORE)
            else:
                yield from entries(languages, words[:1], words[1:], file.path, line.number)


def muse_words(line: str) -> list[str]:
    """The columns of a line of a MUSE dictionary: what white space parts, or tabs alone where it has one."""
    words = line.split("\t") if "\t" in line.strip() else line.split()
    if len(words) > 2 and len(by_blanks := line.strip(BLANKS).split(" ")) == 2:
        words = by_blanks  # a no-break space within a term
    return [bare for word in words if (bare := " ".join(word.split()))]


def read_tsv_terms(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Entries of two columns between tabs: those that a header calls by the languages or as a pair, else the first two.

    What stands in other columns, such as parts of speech, is counted and not read.
    """
    for file in files_of(part.paths[0]):
        rows = ((line.number, line.text.split("\t"), line.fault) for line in number_lines(file, file.path))
        yield from _entries(file.path, rows, languages, part.columns)


def read_csv_terms(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """As read_tsv_terms, of fields that may be quoted; the delimiter is found by looking."""
    for file in files_of(part.paths[0]):
        lines = number_lines(file, file.path)
        head: list[Line] = list(islice(lines, LOOKED_AT))
        delimiter = find_delimiter([line for line in head if not line.fault])
        yield from _entries(file.path, csv_rows(chain(head, lines), delimiter), languages, part.columns)


def read_xlsx_terms(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """As read_tsv_terms, of the first sheet of an Excel workbook that holds rows."""
    (path,) = part.paths
    with open_rows(path) as (rows, others):
        if others:
            yield Noted(OTHER_SHEETS, others)
        yield from _entries(path, ((number, cells, "") for number, cells in rows), languages, part.columns)


def _entries(
    path: str, rows: Iterator[tuple[int, list[str], str]], languages: Sequence[str], columns: Sequence[str] | None
) -> Iterator[Record | Skipped | Noted]:
    """Raises DataError where it is not clear which two of several columns are the terms."""
    head = list(islice(rows, LOOKED_AT))
    full = [cells for _, cells, fault in head if not fault and any(cell.strip() for cell in cells)]
    places: tuple[int, int] | None = None
    for number, cells, fault in chain(head, rows):
        if fault:
            yield BadRow(path, number, fault)
            continue
        if not any(cell.strip() for cell in cells):
            yield Skipped("blank line")
            continue
        if places is None:
            places, is_header = _find_terms(path, full, languages, columns)
            if is_header:
                yield Skipped(HEADER)
                continue
        if len(cells) <= max(places):
            yield BadRow(path, number, ONE_TERM)
            continue
        if notes := sum(bool(cell.strip()) for place, cell in enumerate(cells) if place not in places):
            yield Noted(NOTES, notes)
        yield from entries(languages, [cells[places[0]]], [cells[places[1]]], path, number)


def _find_terms(
    path: str, rows: Sequence[Sequence[str]], languages: Sequence[str], columns: Sequence[str] | None
) -> tuple[tuple[int, int], bool]:
    """The places of the two terms, and whether the first of the rows is a header.

    Raises:
        DataError: the columns that are named are not there; or none are, and the first two are not terms.
    """
    names = rows[0]
    if columns:
        (first, second), has_header = find_columns(path, [name.strip() for name in names], columns)
        return (first, second), has_header
    codes = [without_region(language_of_name(name)) for name in names]
    if languages[0] in codes and languages[1] in codes:
        return (codes.index(languages[0]), codes.index(languages[1])), True
    plain = [name.strip().lower() for name in names]
    found = [next((place for place, name in enumerate(plain) if name in heads), None) for heads in _HEADS]
    if found[0] is not None and found[1] is not None:
        return (found[0], found[1]), True
    of_terms = [[row[place] for row in rows[1:] if place < len(row)] for place in (0, 1)]
    if any(cells and not is_text(cells) for cells in of_terms):
        raise DataError(
            f"{path}: its first two columns do not hold terms of two languages; the first row has "
            f'{", ".join(map(repr, names))}. Name the columns that do: columns: ["1", "{len(names)}"], or by this row.'
        )
    return (0, 1), False
