"""Reads tab-separated pairs: two columns, or a header that names the language of each column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xalign_ray.data.sources.column_languages import column_of, language_of_name
from xalign_ray.data.sources.moses import check_texts
from xalign_ray.data.sources.open import Line, read_lines
from xalign_ray.data.sources.parts import Part
from xalign_ray.data.sources.records import BadRow, Pair, Record, Skipped
from xalign_ray.errors import DataError


def read_tsv(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped]:
    """Pairs of a file, in the columns that the source names: by the header, or by numbers from 1 where it has none.

    Where it names none, columns are taken by language if the first line calls two by the languages, or each by one, and
    as they are if not. Fields are not quoted.

    Raises:
      DataError: the header lacks a column or language, or there is neither header nor `languages`.
    """
    (path,) = part.paths
    columns = part.columns or languages
    if part.columns or (columns and _is_header(_first_cells(path), columns)):
        first, second = languages
        yield from _read_columns(part, columns, (first, second))
        return
    header = _header(path)
    chosen = _choose(path, header, languages)
    places = [header.index(code) for code in chosen] if header else [0, 1]
    width = len(header) or 2
    for line in read_lines(path, part.spans[0], part.first_line):
        if not line.fault and not line.text.strip():
            yield Skipped("blank line")
        elif line.number > 1 or not header:
            yield _pair(line, places, width, chosen, path)


def _is_header(names: Sequence[str], languages: Sequence[str]) -> bool:
    """Whether a first row calls two of its columns by the languages."""
    return len({name for code in languages if (name := column_of(names, code))}) == len(languages)


def _first_cells(path: str) -> list[str]:
    first = next(read_lines(path), None)
    return [name.strip() for name in first.text.split("\t")] if first else []


def _read_columns(part: Part, columns: Sequence[str], languages: tuple[str, str]) -> Iterator[Record | Skipped]:
    (path,) = part.paths
    names = _first_cells(path)
    places, has_header = find_columns(path, names, columns)
    for line in read_lines(path, part.spans[0], part.first_line):
        if not line.fault and not line.text.strip():
            yield Skipped("blank line")
        elif line.number > 1 or not has_header:
            yield _pair(line, places, len(names), languages, path)


def find_columns(path: str, names: Sequence[str], columns: Sequence[str]) -> tuple[list[int], bool]:
    """The places of columns among those of a first row, and whether that row is a header: by their names, or by what
    stands for the same language (`rus`, `Russian`, `text_ru` for ru).

    Raises:
      DataError: the row has no such column.
    """
    if all(found := [column_of(names, column) for column in columns]) and len(set(found)) == len(found):
        return [names.index(name) for name in found], True
    numbers = [int(column) - 1 if column.isdecimal() else -1 for column in columns]
    if all(0 <= number < len(names) for number in numbers):
        return numbers, False
    missing = next(column for column in columns if column not in names)
    raise DataError(f"{path} has no column '{missing}'; its first row has {', '.join(map(repr, names)) or 'none'}.")


def _pair(line: Line, columns: Sequence[int], width: int, languages: tuple[str, str], path: str) -> Record:
    fields = line.text.split("\t")
    if not line.fault and len(fields) != width:
        fault = "too few columns" if len(fields) < width else "too many columns"
        return BadRow(path, line.number, fault)
    texts = (fields[columns[0]].strip(), fields[columns[1]].strip()) if not line.fault else ("", "")
    if fault := line.fault or check_texts(texts):
        return BadRow(path, line.number, fault)
    return Pair(languages, texts, path, line.number)


def _header(path: str) -> list[str]:
    """The languages that the first line names, or nothing if it is not a header."""
    codes = [language_of_name(name) for name in _first_cells(path)]
    return codes if len(codes) > 1 and all(codes) else []


def _choose(path: str, header: list[str], languages: Sequence[str]) -> tuple[str, str]:
    if languages:
        first, second = languages
        if header and (missing := [code for code in languages if code not in header]):
            raise DataError(f"{path} has no column {missing[0]}; its header names {', '.join(header)}.")
        return first, second
    if len(header) != 2:
        found = f"a header of {len(header)} languages" if header else "no header that names its languages"
        raise DataError(f"{path} has {found}. Say which two it holds, for example --languages en,de.")
    return header[0], header[1]
