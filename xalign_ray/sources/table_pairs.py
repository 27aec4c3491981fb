"""Reads tables of pairs: CSV and TSV by one reader of rows, Excel workbooks."""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, NamedTuple
from xml.etree.ElementTree import ParseError

from xalign_ray.errors import DataError
from xalign_ray.sources.columnar import one_line, records_of, wanted_columns
from xalign_ray.sources.language_id import column_of, language_of_name
from xalign_ray.sources.open import (
    MAX_LINE_BYTES,
    Line,
    is_one_piece,
    open_bytes,
    read_lines,
    size_of,
)
from xalign_ray.sources.records import (
    PART_BYTES,
    BadRow,
    Noted,
    Part,
    Record,
    Skipped,
    find_lines,
    list_some,
    one_part_a_file,
    spans_between,
)

DELIMITERS = ",;\t|"
LOOKED_AT = 200  # records by which the delimiter is found
MAX_LINES = 64  # of a record whose lines may look like records: a stray quote must not take the rest of the file
MISSING = frozenset(  # what pandas and spreadsheets write for an empty cell, and for one that they cannot compute
    ("NaN", "nan", "<NA>", "NULL", "#N/A", "#VALUE!", "#REF!", "#NAME?", "#DIV/0!", "#NUM!", "#NULL!", "#ERROR!")
)
UNCLOSED = "a quote is not closed"
TOO_LONG = f"a quote is not closed within {MAX_LINE_BYTES >> 20} MB"
INSIDE = "line behind a quote that is not closed"
MALFORMED = "a quote stands inside a field"
UNQUOTED = "rows between tabs with fields in quotes, read as CSV has them"
AS_TEXT = "rows between tabs with a field that begins with a quote, kept as text"
BACKSLASH = "rows with quotes behind a backslash, read as Spark writes them"
_SEP = "sep="  # how a first line of Excel begins that names the delimiter
csv.field_size_limit(4 * MAX_LINE_BYTES)  # more than _Feed gives of a record; csv's own limit is 131,072 characters


class CsvRow(NamedTuple):
    """A record of a CSV file, and the line it begins at; `fault` is empty, or why its cells could not be had; `note` is
    how its quotes were read, where they may be read in another way."""

    number: int
    cells: list[str]
    fault: str
    note: str = ""


class CsvHead(NamedTuple):
    """What the beginning of a CSV file says of it: its first two records, the number of the first one's line, whether
    line 1 names the delimiter, and whether each field is quoted."""

    delimiter: str
    cells: list[str]
    below: list[str]
    first: int
    is_named: bool
    is_quoted: bool


def read_csv(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Documents or pairs of a CSV or TSV file, in the columns that the source names.

    Without these documents are in `text`, and pairs in columns that are called by the languages, or in both of a TSV
    file without a header. Line ends within a field of a pair become blanks. A field that a quote opens and none closes
    makes a bad row of its first line, or is text between tabs; what becomes of the next lines csv_rows says.

    Raises:
      DataError: the first record has no such column.
    """
    (path,), make, is_tsv = part.paths, records_of(part, languages, cell_text), part.format == "tsv"
    head = read_head(path, "\t" if is_tsv else "")
    names, below, columns = head.cells, head.below, wanted_columns(part, languages)
    called = [names.index(name) if (name := column_of(names, code)) else None for code in languages]
    if is_tsv and not part.columns and None in called and not (names and all(map(language_of_name, names))):
        check_half_header(path, names, below, languages, called)
        names, columns = [*names, "", ""][:2], ("1", "2")
    places, has_header = find_columns(path, names, columns, below) if head.cells else ([], False)
    lines = read_lines(path, part.spans[0], part.first_line)
    for row in csv_rows(lines, head.delimiter, len(names), is_text=len(languages) == 1, is_quoted=head.is_quoted):
        if (head.is_named and row.number == 1) or (has_header and row.number == head.first):
            continue
        if row.note:
            yield Noted(row.note, 1)
        if row.fault:
            yield BadRow(path, row.number, row.fault)
        elif any(row.cells):
            yield make([row.cells[place] for place in places], row.number)
        else:
            yield Skipped("blank line")


def cell_text(cell: str) -> str:
    """The text of a cell on one line; none where a program wrote that there is no value."""
    text = one_line(cell)
    return "" if text in MISSING else text


def read_head(path: str, delimiter: str = "") -> CsvHead:
    """The delimiter, if none is given that by which most records have as many columns as the first, and the first two
    records, empty where there are none.

    Raises:
      BrokenFileError: it cannot be read.
    """
    lines = (line for line in read_lines(path) if not line.fault)
    head = list(islice(lines, LOOKED_AT))
    named = None if delimiter else named_delimiter(head)
    delimiter, head = named or (delimiter or find_delimiter(head), head)
    is_quoted = _is_quoted([line.text.split(delimiter) for line in head if line.text.strip()])
    rows = csv_rows(chain(head, lines), delimiter, is_text=True, is_quoted=is_quoted)
    full = list(islice((row for row in rows if not row.fault and any(cell.strip() for cell in row.cells)), 2))
    cells, below = ([cell.strip() for cell in row.cells] for row in [*full, CsvRow(0, [], ""), CsvRow(0, [], "")][:2])
    return CsvHead(delimiter, cells, below, full[0].number if full else 0, named is not None, is_quoted)


def _is_quoted(rows: Sequence[Sequence[str]]) -> bool:
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


def csv_rows(
    lines: Iterator[Line], delimiter: str, width: int | None = None, *, is_text: bool = False, is_quoted: bool = False
) -> Iterator[CsvRow]:
    """The records of lines; those that have not `width` columns are faults, if it is given.

    A quote that is not closed is a stray one where half of the lines behind it have the columns of a record: these are
    read as records. Where fewer have, they are lines of a text, and each is a fault. Between tabs a quote is text
    unless it is used as in CSV: doubled inside the field, or around a tab or a line end. A quote behind a backslash is
    read as a doubled one where the record cannot be read otherwise.

    Args:
      is_text: a field may be a document. Else a quote is a stray one, too, that is closed behind more than MAX_LINES of
        which most have the columns of a record.
      is_quoted: each field is quoted, also between tabs.
    """
    feed, usual, may_be_text = _Feed(lines), width or 0, delimiter == "\t" and not is_quoted
    escaped: dict[int, str] = {}  # lines with quotes behind a backslash, as they were
    while True:
        reader = csv.reader(feed, delimiter=delimiter, strict=True, skipinitialspace=True)
        while True:
            taken = feed.taken = []
            try:
                cells, quote = next(reader, None), ""
            except csv.Error as error:
                cells, quote = [], feed.unclosed() if "end of data" in str(error) else MALFORMED
            if cells is None or not taken:
                return
            usual = usual or len(cells)
            number, text = taken[0].number, taken[0].text
            fault = next((line.fault for line in taken if line.fault), "") or quote or _width_fault(cells, width)
            new = next((one for one in taken if '\\"' in one.text and one.number not in escaped), None)
            if fault and new:
                escaped[new.number] = new.text
                doubled = Line(new.number, new.text.replace('\\"', '""'), "")
                feed.give_back([doubled if one is new else one for one in taken])
                break
            text, note = (escaped.pop(number), BACKSLASH) if number in escaped else (text, "")
            if may_be_text and not taken[0].fault:
                raw = [field.strip() for field in text.split("\t")]
                is_record = not fault and _share_of_records(taken, delimiter, usual) <= 0.5
                if '"' in text and (is_record if len(taken) > 1 else not fault and _needs_quotes(cells, raw)):
                    yield CsvRow(number, cells, "", note or UNQUOTED)
                    continue
                begins = any(cell.startswith('"') for cell in raw)
                yield CsvRow(number, raw, _width_fault(raw, width), AS_TEXT if begins else "")
                if quote or len(taken) > 1:
                    feed.give_back(taken[1:])
                    break
                continue
            if len(taken) == 1:
                yield CsvRow(number, cells, fault, "" if fault else note)
                continue
            end = len(taken) - (quote == MALFORMED)  # the line where a quote stands wrong may begin a record
            share = _share_of_records(taken[1:end], delimiter, usual)
            is_stray = share >= 0.5 if fault else share > 0.5 and len(taken) > MAX_LINES and not is_text
            if not quote and not is_stray:
                yield CsvRow(number, cells, fault, "" if fault else note)
                continue
            yield CsvRow(number, [], taken[0].fault or (UNCLOSED if is_stray else fault))
            if is_stray:
                feed.give_back(taken[1:])
            else:
                feed.give_back(taken[end:])
                yield from (CsvRow(line.number, [], INSIDE) for line in taken[1:end])
                while quote == TOO_LONG and (line := feed.take()):
                    yield CsvRow(line.number, [], INSIDE)
                    if line.text.count('"') % 2:  # the quote that closes; those within a text are doubled
                        break
            break  # a new reader: this one may have seen the end of its lines


def _width_fault(cells: Sequence[str], width: int | None) -> str:
    """Why a record has not `width` columns, if it is given; a blank line is none."""
    if width is None or len(cells) == width or not any(cells):
        return ""
    return "too few columns" if len(cells) < width else "too many columns"


def _needs_quotes(cells: Sequence[str], raw: Sequence[str]) -> bool:
    """Whether a program that quotes only where it must has quoted a line: its fields, and what stands between tabs."""
    changed = [cell for cell, field in zip(cells, raw, strict=False) if cell.strip() != field]
    return len(cells) != len(raw) or any(not cell or '"' in cell for cell in changed)


def _share_of_records(lines: Sequence[Line], delimiter: str, width: int) -> float:
    """The share of lines that have the columns of a record; of lines of one column, which any text has, none."""
    if not lines or width < 2:
        return 0.0 if lines else 1.0
    return sum(line.text.count(delimiter) == width - 1 for line in lines) / len(lines)


class _Feed:
    """The lines that csv.reader asks for, noted in `taken`; ends after MAX_LINE_BYTES of one record."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self.taken: list[Line] = []
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
        return line.text + "\n"

    def take(self) -> Line | None:
        """The next line, or None at the end."""
        return self._waiting.popleft() if self._waiting else next(self._lines, None)

    def unclosed(self) -> str:
        """Why a quote was not closed in what was taken."""
        return UNCLOSED if self._held <= MAX_LINE_BYTES else TOO_LONG

    def give_back(self, lines: Sequence[Line]) -> None:
        """Puts lines that were taken before those to come."""
        self._waiting.extendleft(reversed(lines))


def split_csv(format_: str, paths: Sequence[str]) -> list[Part]:
    """Parts of about 64 MB that begin at a record of CSV or TSV; a large file is read once for that."""
    return [part for path in paths for part in _split(format_, path)]


def _split(format_: str, path: str) -> list[Part]:
    if is_one_piece(path) or size_of(path) <= PART_BYTES:
        return one_part_a_file(format_, [path])
    head = read_head(path, "\t" if format_ == "tsv" else "")
    numbers, held, is_text = [1], 0, format_ == "csv_text"
    for row in csv_rows(read_lines(path), head.delimiter, len(head.cells), is_text=is_text, is_quoted=head.is_quoted):
        if held >= PART_BYTES:
            numbers.append(row.number)
            held = 0
        held += sum(map(len, row.cells))
    spans = spans_between(find_lines(path, numbers))
    return [Part(format_, (path,), (span,), line) for span, line in zip(spans, numbers, strict=True)]


def find_columns(
    path: str, names: Sequence[str], columns: Sequence[str], below: Sequence[str] = ()
) -> tuple[list[int], bool]:
    """The places of columns among those of a first row, and whether that row is a header: by their names, or by what
    stands for the same language (`rus`, `Russian`, `text_ru` for ru).

    Args:
      below: the second row: a name that stands there too is no name, but what each row says of its texts.

    Raises:
      DataError: the row has no such column, or only repeats what each row says.
    """
    if all(found := [column_of(names, column) for column in columns]) and len(set(found)) == len(found):
        places = [names.index(name) for name in found]
        if is_repeated(names, below, places):
            others = [place for place in range(len(names)) if place not in places] or places
            raise DataError(
                f"{path}: {' and '.join(map(repr, found))} are no names of columns, they stand in the second row too. "
                f'Name the columns of the two texts by their numbers: columns: ["{others[0] + 1}", "{others[-1] + 1}"].'
            )
        return places, True
    numbers = [int(column) - 1 if column.isdecimal() else -1 for column in columns]
    if all(0 <= number < len(names) for number in numbers):
        return numbers, False
    absent = [column for column, number in zip(columns, numbers, strict=True) if not 0 <= number < len(names)]
    missing = next((column for column in [*absent, *columns] if column not in names), columns[-1])
    shown = list_some([repr(name) for name in names if name])
    raise DataError(f"{path} has no column '{missing}'; its first row has {shown or 'none'}.")


def is_repeated(names: Sequence[str], below: Sequence[str], places: Sequence[int]) -> bool:
    """Whether one of the names in these places of a first row stands in the second too, as each row may say its own
    languages."""
    return any(place < len(below) and names[place] == below[place].strip() for place in places)


def check_half_header(
    path: str, names: Sequence[str], below: Sequence[str], languages: Sequence[str], called: Sequence[int | None]
) -> None:
    """Looks whether a first row calls one column by a language and none by the other, which may stand in any of them.

    Args:
      below: the second row: a name that stands there too is what each row says.
      called: the place of the column that is called by each of the languages, or None.

    Raises:
      DataError: it does; the rows would be read as they stand, and perhaps the wrong way round.
    """
    known = [place for place in called if place is not None]
    if not known or None not in called or is_repeated(names, below, known):
        return
    missing = called.index(None)
    place, example = known[0], ""
    if len(names) == 2:
        one, other = (1 - place, place) if missing == 0 else (place, 1 - place)
        example = (
            f': columns: ["{names[one]}", "{names[other]}"], or ["{one + 1}", "{other + 1}"] if that row has texts'
        )
    raise DataError(
        f"{path}: its first row says which column is in '{languages[1 - missing]}' ({names[place]}), and of none that "
        f"it is in '{languages[missing]}'. Write that above its column, or name both columns{example}."
    )


# Reads Excel workbooks: the first sheet that holds rows is a table of pairs, by openpyxl.

PACKAGE = "xalign-ray[excel]"
OTHER_SHEETS = "sheets after the first, which are not read"


def read_workbook(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Pairs of the first sheet that holds rows, in the columns that the source names, or called by the languages.

    `line` is the number of the row. The value of a formula is what Excel saved of it.

    Raises:
      DataError: it is no workbook, openpyxl is not installed, or the first row has no such column.
    """
    (path,), make, columns = part.paths, records_of(part, languages, str), wanted_columns(part, languages)
    with open_rows(path) as (rows, others):
        if others:
            yield Noted(OTHER_SHEETS, others)
        head = list(islice(rows, LOOKED_AT))
        width = max((len(cells) for _, cells in head), default=0)  # the first row may be a title, shorter than the rest
        places, has_header = None, False
        for number, cells in chain(head, rows):
            if not any(cells):
                yield Skipped("blank line")
                continue
            if places is None:
                names = [*cells, *[""] * (width - len(cells))]
                below = next((cells for at, cells in head if at > number and any(cells)), [])
                places, has_header = find_columns(path, names, columns, below)
                if has_header:
                    continue
            yield make([cells[place] if place < len(cells) else "" for place in places], number)


@contextmanager
def open_rows(path: str) -> Iterator[tuple[Iterator[tuple[int, list[str]]], int]]:
    """The rows of the first sheet that holds any, with their numbers from 1, and how many other sheets there are.

    Raises:
      DataError: it is no workbook, or openpyxl is not installed.
    """
    try:
        import openpyxl
    except ImportError:
        raise DataError(
            f"{path} is an Excel workbook, which openpyxl reads: pip install '{PACKAGE}'. Or save its sheet as CSV in "
            "UTF-8."
        ) from None
    with open_bytes(path) as file, _explained(path):
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        try:
            sheets = book.worksheets
            filled = next((sheet for sheet in sheets if any(any(cells) for _, cells in _rows(path, sheet))), None)
            if filled is None:
                raise DataError(f"{path} is an Excel workbook without a row. Check that it is the right file.")
            yield _rows(path, filled), len(sheets) - 1
        finally:
            book.close()


def _rows(path: str, sheet: Any) -> Iterator[tuple[int, list[str]]]:
    sheet.reset_dimensions()  # what programs wrote of a sheet's size is often wrong
    with _explained(path):
        for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
            yield number, [_text(value) for value in row]


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """What the zip, its XML and openpyxl raise, in a sentence."""
    try:
        yield
    except DataError:
        raise
    except (zipfile.BadZipFile, zlib.error, ParseError, KeyError, ValueError, TypeError, OSError, EOFError) as error:
        raise DataError(f"{path} is no Excel workbook, or is damaged ({error}). Fetch or save it again.") from None


def first_cells(path: str, count: int) -> list[list[str]]:
    """The cells of the first rows that are not empty."""
    with open_rows(path) as (rows, _):
        return list(islice((cells for _, cells in rows if any(cells)), count))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    from openpyxl.utils.escape import unescape

    return cell_text(unescape(str(value)))  # _x000D_ is a CR
