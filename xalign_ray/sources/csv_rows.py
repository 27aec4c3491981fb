"""Records of CSV and TSV files, stray and escaped quotes included."""

from __future__ import annotations

import csv
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from xalign_ray.sources.open import MAX_LINE_BYTES, Line

DELIMITERS = ",;\t|"
MAX_LINES = 64  # of a record whose lines may look like records: a stray quote must not take the rest of the file
UNCLOSED = "a quote is not closed"
TOO_LONG = f"a quote is not closed within {MAX_LINE_BYTES >> 20} MB"
INSIDE = "line behind a quote that is not closed"
MALFORMED = "a quote stands inside a field"
UNQUOTED = "rows between tabs with fields in quotes, read as CSV has them"
AS_TEXT = "rows between tabs with a field that begins with a quote, kept as text"
BACKSLASH = "rows with quotes behind a backslash, read as Spark writes them"
TOO_FEW, TOO_MANY = "too few columns", "too many columns"
_SEP = "sep="  # how a first line of Excel begins that names the delimiter
csv.field_size_limit(4 * MAX_LINE_BYTES)  # more than _Feed gives of a record; csv's own limit is 131,072 characters


class CsvRow(NamedTuple):
    """A record of a CSV file, and the line it begins at; `fault` is empty, or why its cells could not be had; `note` is
    how its quotes were read, where they may be read in another way."""

    number: int
    cells: list[str]
    fault: str = ""
    note: str = ""


def csv_rows(
    lines: Iterator[Line], delimiter: str, width: int | None = None, *, is_text: bool = False, is_quoted: bool = False
) -> Iterator[CsvRow]:
    """The records of lines; those that have not `width` columns are faults, if it is given.

    A quote that is not closed is a stray one where half of the lines behind it have the columns of a record: these are
    read as records. Where fewer have, they are lines of a text, and each is a fault. Between tabs a quote is text
    unless it is used as in CSV: doubled inside the field, or around a tab or a line end. Quotes behind a backslash are
    read as doubled ones, all of a record, where it cannot be read otherwise.

    Args:
      is_text: a field may be a document. Else a quote is a stray one, too, that is closed behind more than MAX_LINES of
        which most have the columns of a record.
      is_quoted: each field is quoted, also between tabs.
    """
    feed, usual, may_be_text = _Feed(lines), width or 0, delimiter == "\t" and not is_quoted
    while True:
        reader = csv.reader(feed, delimiter=delimiter, strict=True, skipinitialspace=True)
        while True:
            lines_read = feed.taken = []
            try:
                cells, quote = next(reader, None), ""
            except csv.Error as error:
                cells, quote = [], feed.unclosed() if "end of data" in str(error) else MALFORMED
            if cells is None or not lines_read:
                return
            usual = usual or len(cells)
            number, text = lines_read[0].number, lines_read[0].text
            fault = next((line.fault for line in lines_read if line.fault), "") or quote or _width_fault(cells, width)
            is_escaped, feed.is_escaped = feed.is_escaped, False
            if fault and not is_escaped and any('\\"' in line.text for line in lines_read):
                feed.give_back(lines_read)
                feed.is_escaped = True
                break
            note = BACKSLASH if is_escaped else ""
            if may_be_text and not lines_read[0].fault:
                raw = [field.strip() for field in text.split("\t")]
                is_record = not fault and _share_of_records(lines_read, delimiter, usual) <= 0.5
                if '"' in text and (is_record if len(lines_read) > 1 else not fault and _needs_quotes(cells, raw)):
                    yield CsvRow(number, cells, "", note or UNQUOTED)
                    continue
                begins = any(cell.startswith('"') for cell in raw)
                yield CsvRow(number, raw, _width_fault(raw, width), AS_TEXT if begins else "")
                if quote or len(lines_read) > 1:
                    feed.give_back(lines_read[1:])
                    break
                continue
            if len(lines_read) == 1:
                yield CsvRow(number, cells, fault, "" if fault else note)
                continue
            end = len(lines_read) - (quote == MALFORMED)  # the line where a quote stands wrong may begin a record
            share = _share_of_records(lines_read[1:end], delimiter, usual)
            is_stray = share >= 0.5 if fault else share > 0.5 and len(lines_read) > MAX_LINES and not is_text
            if not quote and not is_stray:
                yield CsvRow(number, cells, fault, "" if fault else note)
                continue
            yield CsvRow(number, [], lines_read[0].fault or (UNCLOSED if is_stray else fault))
            if is_stray:
                feed.give_back(lines_read[1:])
            else:
                feed.give_back(lines_read[end:])
                yield from (CsvRow(line.number, [], INSIDE) for line in lines_read[1:end])
                while quote == TOO_LONG and (line := feed.take()):
                    yield CsvRow(line.number, [], INSIDE)
                    text = _doubled(line.text) if is_escaped else line.text
                    if text.count('"') % 2:  # the quote that closes; those within a text are doubled
                        break
            break  # a new reader: this one may have seen the end of its lines


def _width_fault(cells: Sequence[str], width: int | None) -> str:
    """Why a record has not `width` columns, if it is given; a blank line is none."""
    if width is None or len(cells) == width or not any(cells):
        return ""
    return TOO_FEW if len(cells) < width else TOO_MANY


def _needs_quotes(cells: Sequence[str], raw: Sequence[str]) -> bool:
    """Whether a program that quotes only where it must has quoted a line: its fields, and what stands between tabs."""
    changed = [cell for cell, field in zip(cells, raw, strict=False) if cell.strip() != field]
    return len(cells) != len(raw) or any(not cell or '"' in cell for cell in changed)


def _share_of_records(lines: Sequence[Line], delimiter: str, width: int) -> float:
    """The share of lines that have the columns of a record; of lines of one column, which any text has, none."""
    if not lines or width < 2:
        return 0.0 if lines else 1.0
    return sum(line.text.count(delimiter) == width - 1 for line in lines) / len(lines)


def _doubled(text: str) -> str:
    return text.replace('\\"', '""')


class _Feed:
    """The lines that csv.reader asks for, noted in `taken`; ends after MAX_LINE_BYTES of one record.

    Attributes:
        is_escaped: quotes behind a backslash are given as doubled ones.
    """

    def __init__(self, lines: Iterator[Line]) -> None:
        self.taken: list[Line] = []
        self.is_escaped = False
        self._lines, self._waiting, self._held = lines, deque[Line](), 0

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        if not self.taken:
            self._held = 0
        if self._held > MAX_LINE_BYTES or (line := self.take()) is None:
            raise StopIteration
        self.taken.append(line)
        self._held += len(line.text)
        return (_doubled(line.text) if self.is_escaped else line.text) + "\n"

    def take(self) -> Line | None:
        """The next line, or None at the end."""
        return self._waiting.popleft() if self._waiting else next(self._lines, None)

    def unclosed(self) -> str:
        """The reason for a quote without an end."""
        return UNCLOSED if self._held <= MAX_LINE_BYTES else TOO_LONG

    def give_back(self, lines: Sequence[Line]) -> None:
        """Puts lines that were taken before those to come."""
        self._waiting.extendleft(reversed(lines))


def is_quoted(rows: Sequence[Sequence[str]]) -> bool:
    """Whether each field stands in quotes, in those lines that have as many fields as the first."""
    fields = [field.strip() for row in rows if len(row) == len(rows[0]) for field in row]
    return bool(fields) and all(len(field) > 1 and field[0] == field[-1] == '"' for field in fields)


def named_delimiter(lines: Sequence[Line]) -> tuple[str, list[Line]] | None:
    """The delimiter that Excel's first line names, and the lines behind it."""
    if lines and lines[0].text.lower().startswith(_SEP) and len(lines[0].text.strip()) == len(_SEP) + 1:
        return lines[0].text.strip()[-1], list(lines[1:])
    return None


def find_delimiter(lines: Sequence[Line]) -> str:
    """The delimiter by which most records have as many columns as the first."""
    return max(DELIMITERS, key=lambda one: _regularity(lines, one))


def _regularity(lines: Sequence[Line], delimiter: str) -> float:
    """The share of records that have as many columns as the first, none where that is one."""
    rows = [row for row in csv_rows(iter(lines), delimiter) if row.fault or any(row.cells)]
    widths = Counter(0 if row.fault else len(row.cells) for row in rows)
    first = len(rows[0].cells) if rows else 0
    return widths[first] / len(rows) if first > 1 else 0.0
