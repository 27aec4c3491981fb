"""Reads PanLex's snapshot in CSV: expressions of two languages that share a meaning of the same source."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence

from xalign_ray.data.sources.column_languages import fits
from xalign_ray.data.sources.open import Chunks, number_lines
from xalign_ray.data.sources.parts import WHOLE, Part
from xalign_ray.data.sources.records import BadRow, Noted, Record, Skipped
from xalign_ray.data.sources.term_files import NO_TRANSLATION, entries, files_of
from xalign_ray.data.sources.tmx import written_code
from xalign_ray.errors import DataError

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
