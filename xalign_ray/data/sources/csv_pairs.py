"""Reads CSV pairs: quoted fields, which may hold line ends, and a delimiter that is found by looking."""

from __future__ import annotations

import csv
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from xalign_ray.data.sources.files import size_of
from xalign_ray.data.sources.jsonl import TEXT, document_of, one_line
from xalign_ray.data.sources.moses import check_texts
from xalign_ray.data.sources.open import Line, is_one_piece, read_lines
from xalign_ray.data.sources.parts import PART_BYTES, Part, find_lines, one_part_a_file, spans_between
from xalign_ray.data.sources.records import BadRow, Pair, Record, Skipped
from xalign_ray.data.sources.tsv import find_columns
from xalign_ray.errors import DataError

DELIMITERS = ",;\t|"
LOOKED_AT = 200  # records by which the delimiter is found
MAX_LINES = 64  # of a record: a quote that is never closed must not take the rest of the file
MISSING = frozenset({"NaN", "nan", "<NA>", "#N/A", "NULL"})  # what pandas and spreadsheets write for an empty cell
UNCLOSED = "a quote is not closed"
MALFORMED = "a quote stands inside a field"
_SEP = "sep="  # how a first line of Excel begins that names the delimiter


class CsvRow(NamedTuple):
    """A record of a CSV file, and the line it begins at; `fault` is empty, or why its cells could not be had."""

    number: int
    cells: list[str]
    fault: str


class CsvHead(NamedTuple):
    """What the beginning of a CSV file says of it; `first` is the number of its first record's line."""

    delimiter: str
    cells: list[str]
    first: int


def read_csv(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped]:
    """Pairs of a CSV file, in the columns that the source names, or in those that are called by the languages.

    Line ends within a field become blanks. A field that a quote opens and none closes makes a bad row of its first
    line, and reading goes on with the second.

    Raises:
      DataError: the first record has no such column.
    """
    (path,), (first, second) = part.paths, languages

    def pair(cells: Sequence[str], number: int) -> Pair | str:
        one, other = map(cell_text, cells)
        return check_texts((one, other)) or Pair((first, second), (one, other), path, number)

    return _read(part, (first, second), pair)


def read_csv_text(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped]:
    """Documents of a CSV file, in the column that the source names, or in `text`; as read_csv.

    Raises:
      DataError: the first record has no such column.
    """
    (path,), (language,) = part.paths, languages
    return _read(part, (TEXT,), lambda cells, number: document_of(cells[0], language, path, number))


def _read(
    part: Part, columns: Sequence[str], make: Callable[[Sequence[str], int], Record | str]
) -> Iterator[Record | Skipped]:
    """What `make` makes of the cells of each row in the source's columns and its number; a string is a fault.

    Args:
      columns: those that are read where the source names none.
    """
    (path,) = part.paths
    head = read_head(path)
    places, has_header = find_columns(path, head.cells, part.columns or columns)
    for row in csv_rows(read_lines(path, part.spans[0], part.first_line), head.delimiter, len(head.cells)):
        if row.number < head.first or (has_header and row.number == head.first):
            continue
        if not row.fault and not any(row.cells):
            yield Skipped("blank line")
            continue
        made = row.fault or make([row.cells[place] for place in places], row.number)
        yield BadRow(path, row.number, made) if isinstance(made, str) else made


def cell_text(cell: str) -> str:
    """The text of a cell on one line; none where a program wrote that there is no value."""
    text = one_line(cell)
    return "" if text in MISSING else text


def read_head(path: str) -> CsvHead:
    """The delimiter by which most records have as many columns as the first, and the first record.

    Raises:
      DataError: the file is empty.
    """
    lines = [line for line in islice(read_lines(path), LOOKED_AT) if not line.fault]
    if lines and lines[0].text.lower().startswith(_SEP) and len(lines[0].text.strip()) == len(_SEP) + 1:
        delimiter, lines = lines[0].text.strip()[-1], lines[1:]
    else:
        delimiter = find_delimiter(lines)
    rows = csv_rows(iter(lines), delimiter)
    row = next((row for row in rows if not row.fault and any(cell.strip() for cell in row.cells)), None)
    if row is None:
        raise DataError(f"{path} holds no rows. Check that it is the right file.")
    return CsvHead(delimiter, [cell.strip() for cell in row.cells], row.number)


def find_delimiter(lines: Sequence[Line]) -> str:
    """The delimiter by which most records have as many columns as the first."""
    return max(DELIMITERS, key=lambda one: _regularity(lines, one))


def _regularity(lines: Sequence[Line], delimiter: str) -> float:
    """The share of records that have as many columns as the first, none where that is one."""
    rows = [row for row in csv_rows(iter(lines), delimiter) if row.fault or any(row.cells)]
    widths = Counter(0 if row.fault else len(row.cells) for row in rows)
    first = len(rows[0].cells) if rows else 0
    return widths[first] / len(rows) if first > 1 else 0.0


def csv_rows(lines: Iterator[Line], delimiter: str, width: int | None = None) -> Iterator[CsvRow]:
    """The records of lines; those that have not `width` columns are faults, if it is given."""
    waiting: deque[Line] = deque()  # lines that a record took and gave back
    taken: list[Line] = []
    while True:
        feed = _Feed(lines, waiting, taken)
        reader = csv.reader(feed, delimiter=delimiter, strict=True, skipinitialspace=True)
        while True:
            taken.clear()
            try:
                cells, fault = next(reader, None), ""
            except csv.Error as error:
                cells, fault = [], UNCLOSED if "end of data" in str(error) else MALFORMED
            if cells is None or not taken:
                return
            fault = next((line.fault for line in taken if line.fault), "") or fault
            if not fault and width is not None and any(cells) and len(cells) != width:
                fault = "too few columns" if len(cells) < width else "too many columns"
            number = taken[0].number
            if fault and len(taken) > 1:
                waiting.extendleft(reversed(taken[1:]))
                yield CsvRow(number, [], taken[0].fault or UNCLOSED)
                break  # a new reader: this one may have seen the end of its lines
            yield CsvRow(number, cells, fault)


class _Feed:
    """The lines that csv.reader asks for, noted in `taken`; ends after MAX_LINES of one record."""

    def __init__(self, lines: Iterator[Line], waiting: deque[Line], taken: list[Line]) -> None:
        self._lines, self._waiting, self._taken = lines, waiting, taken

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        if len(self._taken) == MAX_LINES:
            raise StopIteration
        line = self._waiting.popleft() if self._waiting else next(self._lines)
        self._taken.append(line)
        return line.text + "\n"


def split_csv(format_: str, paths: Sequence[str]) -> list[Part]:
    """Parts of about 64 MB that begin at a record; a large file is read once for that."""
    return [part for path in paths for part in _split(format_, path)]


def _split(format_: str, path: str) -> list[Part]:
    if is_one_piece(path) or size_of(path) <= PART_BYTES:
        return one_part_a_file(format_, [path])
    head = read_head(path)
    numbers, held = [1], 0
    for row in csv_rows(read_lines(path), head.delimiter, len(head.cells)):
        if held >= PART_BYTES:
            numbers.append(row.number)
            held = 0
        held += sum(map(len, row.cells))
    spans = spans_between(find_lines(path, numbers))
    return [Part(format_, (path,), (span,), line) for span, line in zip(spans, numbers, strict=True)]
