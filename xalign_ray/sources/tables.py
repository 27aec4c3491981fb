"""Tables of rows: CSV, TSV, Excel, JSON, Parquet and Arrow, one function a container, read by the names of columns."""

from __future__ import annotations

import codecs
import dataclasses
import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, NamedTuple
from xml.etree.ElementTree import ParseError

from xalign_ray.config.language_codes import check_language, is_language
from xalign_ray.errors import DataError
from xalign_ray.sources.csv_rows import CsvRow, csv_rows, find_delimiter, is_quoted, named_delimiter
from xalign_ray.sources.language_id import language_of_name
from xalign_ray.sources.open import (
    CHUNK_BYTES,
    MAX_LINE_BYTES,
    NOT_UTF8,
    WHOLE,
    Chunks,
    Line,
    is_one_piece,
    number_lines,
    open_bytes,
    size_of,
)
from xalign_ray.sources.records import PART_BYTES, Kind, Part, find_lines, one_part_a_file, spans_between, to_lines
from xalign_ray.vocabulary.words import BLANKS

ROWS = 500  # by which a table's form is found
TEXT = "text"  # the column of a document, where the source names no other
BLANK, COMMENT, HEADER_AGAIN = "blank line", "comment at the beginning", "header again"
NOT_JSON, NOT_A_ROW, NO_KEY = "it is not JSON", "line is no JSON object", "object lacks the keys of its texts"
MORE = "dictionary line has more than two columns"
OTHER_SHEETS = "sheets after the first, which are not read"
MISSING = frozenset(  # what pandas and spreadsheets write for an empty cell, and for one that they cannot compute
    ("NaN", "nan", "<NA>", "NULL", "#N/A", "#VALUE!", "#REF!", "#NAME?", "#DIV/0!", "#NUM!", "#NULL!", "#ERROR!")
)
PACKAGE = "xalign-ray[excel]"
_COMMENT = re.compile(r"#(?!\w[^\t]*\t|[\t,;|])")  # not `#MeToo\t#MeToo` and `#\tnumber sign`


class TableFile(NamedTuple):
    """A file, or a span of one, to open as a table: the number of its first line, and its settings."""

    chunks: Chunks
    kind: Kind = "pairs"
    first_line: int = 1

    @property
    def path(self) -> str:
        """Its name, for messages and records."""
        return self.chunks.path


class SourceRow(NamedTuple):
    """A row of a table.

    Attributes:
        number: of its line or of the row, from 1.
        cells: what stands in the columns that were asked for, None where nothing does; of dictionaries a cell may be a
            list of terms.
        fault: why it is a bad row, or nothing.
        skipped: why it is left out on purpose, or nothing.
        note: how it was read, where it may be read in another way, or nothing.
        others: cells of a dictionary that are filled and were not asked for.
    """

    number: int
    cells: Sequence[Any] = ()
    fault: str = ""
    skipped: str = ""
    note: str = ""
    others: int = 0


@dataclass(frozen=True)
class SourceTable:
    """A file as a table; nothing but its beginning has been read.

    Attributes:
        names: of its columns, those within objects dotted; of a table that may lack a header the cells of its first
            row.
        read: its rows by the names of columns, by their numbers from 1 where it has no header, or by languages.
        kinds: of the columns without text: number, list or nothing.
        rows: the first rows of a table that may lack a header, the first of them too; else None.
        languages: of its first rows, in place of names, where columns are languages, as in TMX; else None.
        said: the languages in the order that comments give.
        noted: counts of oddities of the file.
    """

    path: str
    names: Sequence[str]
    read: Callable[[Sequence[str]], Iterator[SourceRow]]
    kinds: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rows: Sequence[Sequence[str]] | None = None
    languages: Callable[[], list[str]] | None = None
    said: Sequence[str] = ()
    noted: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        """The names of the columns that hold text."""
        return [name for name in self.names if name not in self.kinds]

    def first_rows(self, keys: Sequence[str], count: int = ROWS) -> tuple[list[SourceRow], bool]:
        """The first rows, good or bad, without those that are left out, and whether they are all."""
        rows = list(islice((row for row in self.read(keys) if not row.skipped), count + 1))
        return rows[:count], len(rows) <= count


def one_line(text: str) -> str:
    """The text with every stretch of white space as one blank."""
    return " ".join(text.split())


# Tables of cells between delimiters, and sheets: their first row may be a header.


def open_csv(file: TableFile) -> SourceTable:
    """CSV, whose delimiter is found by looking. Rows of another width than the first are faults, but of a dictionary.

    Raises:
        BrokenFileError: it cannot be read.
    """
    return _open_delimited(file, "")


def open_tsv(file: TableFile) -> SourceTable:
    """As open_csv, between tabs, where a quote is text unless it is used as in CSV."""
    return _open_delimited(file, "\t")


def _open_delimited(file: TableFile, delimiter: str) -> SourceTable:
    all_chunks = file.chunks.whole()
    is_dictionary = file.kind == "entries"
    comments, lines = split_comments(all_chunks) if is_dictionary else ([], number_lines(all_chunks))
    good = (line for line in lines if not line.fault)
    head = list(islice(good, ROWS))
    named = None if delimiter else named_delimiter(head)
    delimiter, head = named or (delimiter or find_delimiter(head), head)
    quoted = is_quoted([line.text.split(delimiter) for line in head if line.text.strip()])
    first: list[CsvRow] = []
    for row in csv_rows(chain(head, good), delimiter, is_text=True, is_quoted=quoted):
        if len(first) > 1 and row.number > head[-1].number:
            break
        first += [row] if not row.fault and any(cell.strip() for cell in row.cells) else []

    def records(width: int) -> Iterator[CsvRow]:
        lines = split_comments(all_chunks)[1] if is_dictionary else number_lines(file.chunks, file.first_line)
        wanted = None if is_dictionary else width
        for row in csv_rows(lines, delimiter, wanted, is_text=file.kind == "documents", is_quoted=quoted):
            if not named or row.number > 1:
                yield row

    return _table_of_lists(file, first, records, comments, is_strict=not is_dictionary)


def _table_of_lists(
    file: TableFile,
    first: Sequence[CsvRow],
    records: Callable[[int], Iterator[CsvRow]],
    comments: Sequence[Line] = (),
    *,
    is_strict: bool = False,
) -> SourceTable:
    """A table of lists of cells.

    Args:
        first: its first rows that hold anything.
        records: all rows; rows with another number of cells are faults if `is_strict`.
    """
    head = [cell.strip() for cell in first[0].cells] if first else []
    widths = Counter(len(row.cells) for row in first if len(row.cells) > 1)
    usual = widths.most_common(1)[0][0] if widths else len(head)
    names = [name.lstrip("# ") or name for name in head] if file.kind == "entries" else [*head]
    # A first row may be a title, or name the first column alone.
    names += [""] * ((usual if is_strict else max((len(row.cells) for row in first), default=0)) - len(head))

    def read(keys: Sequence[str]) -> Iterator[SourceRow]:
        yield from (SourceRow(line.number, skipped=COMMENT if line.text.strip() else BLANK) for line in comments)
        has_header = all(key in names for key in keys)
        places = [names.index(key) if has_header else int(key) - 1 for key in keys] if first else []
        for number, cells, fault, note in records(len(head) if has_header else usual):
            if fault:
                yield SourceRow(number, fault=fault, note=note)
            elif not any(map(str.strip, cells)):
                yield SourceRow(number, skipped=BLANK)
            elif has_header and number == first[0].number:
                continue
            elif has_header and cells == first[0].cells:
                yield SourceRow(number, skipped=HEADER_AGAIN)
            else:
                values = [cells[index] if index < len(cells) else None for index in places]
                others = 0
                if file.kind == "entries":
                    others = sum(bool(cell.strip()) for index, cell in enumerate(cells) if index not in places)
                yield SourceRow(number, values, "", "", note, others)

    rows = [[cell.strip() for cell in row.cells] for row in first]
    return SourceTable(file.path, names, read, rows=rows, said=said_direction(comments))


def split_comments(file: Chunks) -> tuple[list[Line], Iterator[Line]]:
    """The comments and blank lines that a dictionary begins with, and its other lines, from a header after `#` on."""
    lines, head = number_lines(file), list[Line]()
    for line in lines:
        is_header = "\t" in line.text and all(map(language_of_name, line.text.lstrip("# ").split("\t")))
        if line.fault or is_header or (line.text.strip() and not _COMMENT.match(line.text)):
            return head, chain([line], lines)
        head.append(line)
    return head, iter(())


def open_muse(file: TableFile) -> SourceTable:
    """Lines of a word and its translation, in the order of the file (MUSE: by frequency of the source word).

    Words are parted by any white space, as MUSE's own code does; where a line has a tab, by that alone, so that a term
    may be of several words.
    """

    def read(languages: Sequence[str]) -> Iterator[SourceRow]:
        comments, lines = split_comments(file.chunks)
        yield from (SourceRow(line.number, skipped=COMMENT if line.text.strip() else BLANK) for line in comments)
        step = -1 if said_direction(comments) == [*languages][::-1] else 1
        for line in lines:
            words = line.text.split("\t") if "\t" in line.text.strip() else line.text.split()
            if len(words) > 2 and len(by_blanks := line.text.strip(BLANKS).split(" ")) == 2:
                words = by_blanks  # a no-break space within a term
            terms = [*filter(None, map(one_line, words))]
            fault = line.fault or (MORE if len(terms) > 2 else "")
            yield SourceRow(line.number, [*terms, None][:2][::step], fault, "" if fault or terms else BLANK)

    return SourceTable(file.path, (), read, languages=list)


def said_direction(comments: Sequence[Line]) -> list[str]:
    """The languages in the order of a comment: `# EN-DE vocabulary database`, as dict.cc writes."""
    for line in comments:
        match = re.match(r"#\s*([A-Z]{2})-([A-Z]{2}) vocabulary database", line.text)
        if match and all(map(is_language, map(str.lower, match.groups()))):
            return [check_language(code.lower()) for code in match.groups()]
    return []


def split_csv(format_: str, paths: Sequence[str]) -> list[Part]:
    """Parts of about 64 MB that begin at a record of CSV or TSV; a large file is read once for that."""
    parts: list[Part] = []
    for path in paths:
        if size_of(path) <= PART_BYTES or is_one_piece(path):
            parts += one_part_a_file(format_, [path])
            continue
        table = _open_delimited(TableFile(Chunks(path), "documents"), "\t" if format_ == "tsv" else "")
        numbers, held = [1], 0
        for row in table.read([str(number) for number in range(1, len(table.names) + 1)]):
            if held >= PART_BYTES:
                numbers.append(row.number)
                held = 0
            held += sum(len(cell or "") for cell in row.cells)
        spans = spans_between(find_lines(path, numbers))
        parts += [Part(format_, (path,), (span,), line) for span, line in zip(spans, numbers, strict=True)]
    return parts


def open_workbook(file: TableFile) -> SourceTable:
    """The first sheet of an Excel workbook that holds rows, by openpyxl. The value of a formula is what Excel saved.

    Raises:
        DataError: it is no workbook, or openpyxl is not installed.
    """

    def records(_: int) -> Iterator[CsvRow]:
        with _open_sheet(file.path) as (rows, _):
            yield from rows

    with _open_sheet(file.path) as (rows, others):
        first = list(islice((row for row in rows if any(row.cells)), ROWS))
    return replace(_table_of_lists(file, first, records), noted={OTHER_SHEETS: others} if others else {})


@contextmanager
def _open_sheet(path: str) -> Iterator[tuple[Iterator[CsvRow], int]]:
    """The rows of the first sheet that holds any, and how many other sheets there are."""
    try:
        import openpyxl
    except ImportError:
        raise DataError(
            f"{path} is an Excel workbook, which openpyxl reads: pip install '{PACKAGE}'. Or save its sheet as CSV in "
            "UTF-8."
        ) from None

    def rows_of_sheet(sheet: Any) -> Iterator[CsvRow]:
        sheet.reset_dimensions()  # what programs wrote of a sheet's size is often wrong
        with _explained(path):
            for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
                yield CsvRow(number, [_cell_text(value) for value in row])

    with open_bytes(path) as file, _explained(path):
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        try:
            sheets = book.worksheets
            filled = next((sheet for sheet in sheets if any(any(row.cells) for row in rows_of_sheet(sheet))), None)
            if filled is None:
                raise DataError(f"{path} is an Excel workbook without a row. Check that it is the right file.")
            yield rows_of_sheet(filled), len(sheets) - 1
        finally:
            book.close()


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Errors of the zip, its XML and openpyxl as a sentence."""
    try:
        yield
    except DataError:
        raise
    except (zipfile.BadZipFile, zlib.error, ParseError, KeyError, ValueError, TypeError, OSError, EOFError) as error:
        raise DataError(f"{path} is no Excel workbook, or is damaged ({error}). Fetch or save it again.") from None


def _cell_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    from openpyxl.utils.escape import unescape

    return one_line(unescape(str(value)))  # _x000D_ is a CR


# Tables of JSON objects: columns are keys, dotted inside objects.

_BETWEEN = re.compile(r"[\s,]*")


def open_jsonl(file: TableFile) -> SourceTable:
    """JSON lines, an object a row."""

    chunks = Chunks(file.path, to_lines(file.path, file.chunks.span)) if file.chunks.span != WHOLE else file.chunks

    def values() -> Iterator[tuple[int, Any, str]]:
        for line in number_lines(chunks, file.first_line, json_lines=True):
            if line.fault or not line.text.strip():
                yield line.number, None, line.fault
                continue
            try:
                yield line.number, json.loads(line.text), ""
            except (ValueError, RecursionError):
                yield line.number, None, "line is not JSON"

    return _table_of_objects(file.path, values)


def open_json(file: TableFile) -> SourceTable:
    """A JSON array of objects; rows are numbered by these."""
    return _table_of_objects(file.path, lambda: ((n, value, "") for n, value in enumerate(read_array(file.chunks), 1)))


def _table_of_objects(path: str, values: Callable[[], Iterator[tuple[int, Any, str]]]) -> SourceTable:
    kinds: dict[str, str] = {}
    rows = values()
    head = list(islice(rows, ROWS))
    unread = [chain(head, rows)]  # the first rows are read once
    for _, value, _ in head:
        for key, kind in _leaves("", value):
            if kinds.get(key, "nothing") == "nothing" or kind == "text":
                kinds[key] = kind

    def read(keys: Sequence[str]) -> Iterator[SourceRow]:
        for number, value, fault in unread.pop() if unread else values():
            if value is None and not fault:
                yield SourceRow(number, skipped=BLANK)
                continue
            cells = [find_key(value, key) for key in keys]
            wrong = next((key for key, cell in zip(keys, cells, strict=True) if not _is_unicode(cell)), None)
            fault = fault or (f"'{wrong}' holds half a surrogate pair" if wrong else "")
            if not fault and all(cell is None for cell in cells):
                fault = NO_KEY if isinstance(value, dict) else NOT_A_ROW
            yield SourceRow(number, cells, fault)

    return SourceTable(path, [*kinds], read, {key: kind for key, kind in kinds.items() if kind != "text"})


def _leaves(above: str, value: Any) -> Iterator[tuple[str, str]]:
    """The keys of an object and of objects within it, with their kinds."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        if isinstance(inner, dict):
            yield from _leaves(f"{above}{key}.", inner) if not above else ()
        else:
            kinds = {str: "text", int: "number", float: "number", bool: "number", list: "list"}
            yield above + key, kinds.get(type(inner), "nothing")


def find_key(value: Any, name: str) -> Any:
    """The value under a key, or under a dotted path of keys of objects within objects; None if it is not there."""
    if isinstance(value, dict) and name not in value and "." in name:
        above, _, rest = name.partition(".")
        return find_key(value.get(above), rest)
    return value.get(name) if isinstance(value, dict) else None


def _is_unicode(text: Any) -> bool:
    """JSON can spell lone surrogates (backslash u d800), which no tokenizer and no file accepts."""
    try:
        return not isinstance(text, str) or text.isascii() or bool(text.encode("utf-8"))
    except UnicodeEncodeError:
        return False


def read_array(chunks: Chunks) -> Iterator[Any]:
    """The values of a JSON array of any length, in order; of one that breaks off, the values before.

    Raises:
        BrokenFileError: the rest is no JSON, or a value is longer than 16 MB.
    """
    decoder = json.JSONDecoder()
    marked = next(iter(chunks), b"").startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text_of = codecs.getincrementaldecoder("utf-16" if marked else "utf-8-sig")()
    text, at, opened = "", 0, False
    for chunk in chain(chunks, [b""]):
        try:
            text, at = text[at:] + text_of.decode(chunk, final=not chunk), 0
        except UnicodeDecodeError as error:
            raise chunks.broken(NOT_UTF8) from error
        if not opened and (text := text.lstrip()):
            text, opened = text.removeprefix("["), True
        while (at := _BETWEEN.match(text, at).end()) < len(text) and text[at] != "]":  # pyright: ignore  # matches ""
            try:
                value, end = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                break  # the rest of the value is in the next chunk, or it is no JSON
            yield value
            at = end
        if len(text) - at > MAX_LINE_BYTES + CHUNK_BYTES:
            break
    if text[at:].strip() != "]":
        raise chunks.broken(NOT_JSON)
