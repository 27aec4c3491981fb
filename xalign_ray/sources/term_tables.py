"""Reads dictionaries in tables and lines: MUSE, TSV, CSV, PanLex, kaikki's JSON; finds which form a file has."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

from xalign_ray.config.sources import DictionaryFormat
from xalign_ray.errors import DataError
from xalign_ray.sources.column_languages import fits, language_of_name, without_region
from xalign_ray.sources.first_rows import decoded, is_workbook, table_suffix
from xalign_ray.sources.open import Chunks, Line, held_back, number_lines
from xalign_ray.sources.pair_columns import is_text
from xalign_ray.sources.parts import WHOLE, Part
from xalign_ray.sources.records import BadRow, Noted, Record, Skipped
from xalign_ray.sources.table_pairs import OTHER_SHEETS, csv_rows, find_columns, find_delimiter, open_rows
from xalign_ray.sources.term_files import NO_TRANSLATION, NOTES, ONE_TERM, OTHER_LANGUAGES, entries, files_of
from xalign_ray.sources.xml_pairs import written_code
from xalign_ray.vocabulary.words import BLANKS
from xalign_ray.work.file_checks import HEAD_BYTES

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
    width = max(map(len, rows))
    names = [*rows[0], *[""] * (width - len(rows[0]))]  # a header may name the first column alone
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


# Reads PanLex's snapshot in CSV: expressions of two languages that share a meaning of the same source.

_TABLES = {  # the columns that are read of each
    "langvar": ("id", "lang_code"),
    "expr": ("id", "langvar", "txt"),
    "denotation": ("meaning", "expr"),
}


def split_panlex(format_: str, paths: Sequence[str]) -> list[Part]:
    """One part: the three tables, or the zip of them, belong together."""
    return [Part(format_, tuple(paths), (WHOLE,) * len(paths))]


def read_panlex(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Entries of all varieties of the two languages, meaning by meaning; `line` is the number of the meaning.

    Holds the expressions of the two languages in memory, and the meanings that have any.

    Raises:
      DataError: a table or a column is missing.
    """
    files = [file for path in part.paths for file in files_of(path)]
    tables = {name: _find_table(files, name, part.paths[0]) for name in _TABLES}
    bad: list[BadRow] = []
    varieties: dict[str, int] = {}
    for number, code in _rows(tables["langvar"], "langvar", bad):
        language = written_code(code)
        for place, asked in enumerate(languages):
            if fits(language, asked):
                varieties[number] = place
    texts: dict[str, tuple[int, str]] = {}
    for number, variety, text in _rows(tables["expr"], "expr", bad):
        if variety in varieties:
            texts[number] = (varieties[variety], text)
    meanings: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for meaning, expression in _rows(tables["denotation"], "denotation", bad):
        if expression in texts:
            place, text = texts[expression]
            meanings[meaning][place].append(text)
    yield from bad
    source = tables["denotation"].path
    for meaning, both in meanings.items():
        if all(both):
            yield from entries(languages, *both, source, int(meaning) if meaning.isdecimal() else 0)
        else:
            yield Skipped(NO_TRANSLATION)


def _find_table(files: Sequence[Chunks], name: str, path: str) -> Chunks:
    found = [file for file in files if file.path.replace(":", "/").rsplit("/", 1)[-1].split(".")[0] == name]
    if len(found) != 1:
        raise DataError(
            f"{path} has {len(found) or 'no'} table called {name}.csv. Format panlex reads langvar.csv, expr.csv and "
            "denotation.csv of PanLex's snapshot, or the zip that holds them."
        )
    return found[0]


def _rows(file: Chunks, name: str, bad: list[BadRow]) -> Iterator[tuple[str, ...]]:
    lines = number_lines(file, file.path)
    first = next(lines, None)
    header = next(csv.reader([first.text]), []) if first else []
    if missing := [column for column in _TABLES[name] if column not in header]:
        raise DataError(f"{file.path} has no column '{missing[0]}'; its columns are {', '.join(header) or 'none'}.")
    places = [header.index(column) for column in _TABLES[name]]
    for line in lines:
        cells = [] if line.fault else next(csv.reader([line.text]), [])
        if len(cells) == len(header):
            yield tuple(cells[place] for place in places)
        elif line.fault or line.text.strip():
            bad.append(BadRow(file.path, line.number, line.fault or "row has not the columns of its header"))


# Reads dictionaries of Wiktionary as kaikki.org has them: JSON lines of wiktextract, a word and its translations.

NOT_A_WORD = "line is no JSON object with a word"


def read_kaikki(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Entries of words in either language that have translations into the other; `line` is that of the word.

    Translations stand under the word, or under its senses. Parts of speech, senses and romanisations are counted and
    not read.
    """
    for file in files_of(part.paths[0]):
        for line in number_lines(file, file.path, json_lines=True):
            if not line.fault and not line.text.strip():
                yield Skipped("blank line")
                continue
            value, fault = ({}, line.fault) if line.fault else _parsed(line.text)
            if fault:
                yield BadRow(file.path, line.number, fault)
                continue
            code = _code(value.get("lang_code"))
            turned = not fits(code, languages[0])
            if turned and not fits(code, languages[1]):
                yield Skipped(OTHER_LANGUAGES)
                continue
            found = [_word_of(one) for one in _translations(value) if fits(_code_of(one), languages[not turned])]
            words = [word for word in found if word]
            if notes := sum(key in value for key in ("pos", "tags", "categories", "etymology_text")):
                yield Noted(NOTES, notes)
            if words:
                first, second = (words, [value["word"]]) if turned else ([value["word"]], words)
                yield from entries(languages, first, second, file.path, line.number)
            else:
                yield Skipped(NO_TRANSLATION)


def _parsed(text: str) -> tuple[dict[str, Any], str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}, "line is not JSON"
    is_word = isinstance(value, dict) and isinstance(value.get("word"), str)
    return (value, "") if is_word else ({}, NOT_A_WORD)


def _translations(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    senses = value.get("senses")
    for holder in (value, *(senses if isinstance(senses, list) else ())):
        listed = holder.get("translations") if isinstance(holder, dict) else None
        yield from (one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, dict))


def _code_of(translation: dict[str, Any]) -> str:
    return _code(translation.get("lang_code") or translation.get("code"))


def _word_of(translation: dict[str, Any]) -> str:
    word = translation.get("word")
    return word if isinstance(word, str) else ""


@lru_cache(maxsize=8192)
def _code(written: Any) -> str:
    return written_code(written) if isinstance(written, str) else ""


# Finds the form of a dictionary by looking at its first bytes and lines.

_XML: dict[str, DictionaryFormat] = {
    "<tbx": "tbx", "<martif": "tbx", "<tei": "tei", "<dictionary": "dix",
}  # fmt: skip


def find_dictionary_form(path: str) -> DictionaryFormat:
    """The form of a dictionary, plain, packed or in a zip: TBX, TEI and dix by their first element, kaikki's by JSON,
    PanLex by its tables, Excel by its members, else a table by tabs, or by commas where its name ends in .csv; MUSE for
    two words a line.

    Raises:
        DataError: there is no file in the zip, or it is XML of another kind.
    """
    if is_workbook(path):
        return "xlsx"
    files = list(files_of(path))
    if any(Path(file.path.rsplit(":", 1)[-1]).name == "expr.csv" for file in files):
        return "panlex"
    if not files:
        raise DataError(f"{path} holds no file of a dictionary.")
    head = decoded(next(iter(files[0]), b"")[:HEAD_BYTES]).lstrip()
    if head.startswith("<"):
        for begin, form in _XML.items():
            if begin in head.lower():
                return form
        raise DataError(f"{path} is XML, but no dictionary in TBX, TEI or Apertium's dix. Convert it.")
    if head.startswith("{"):
        return "kaikki"
    if table_suffix(files[0].path) == ".csv":
        return "csv"
    lines = [line.text for line in islice(held_back(number_lines(files[0], files[0].path), []), LOOKED_AT)]
    full = [line for line in lines if line.strip()]
    by_tab = sum("\t" in line for line in full) * 2 > len(full)
    return "tsv" if by_tab and any(len(line.split()) != 2 for line in full) else "muse"
