"""Reads Excel workbooks: the first sheet that holds rows is a table of pairs, by openpyxl."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any
from xml.etree.ElementTree import ParseError

from xalign_ray.data.sources.csv_pairs import cell_text
from xalign_ray.data.sources.files import open_bytes
from xalign_ray.data.sources.moses import check_texts
from xalign_ray.data.sources.parts import Part
from xalign_ray.data.sources.records import BadRow, Noted, Pair, Record, Skipped
from xalign_ray.data.sources.tsv import find_columns
from xalign_ray.errors import DataError

PACKAGE = "xalign-ray[excel]"
OTHER_SHEETS = "sheets after the first, which are not read"


def read_workbook(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Pairs of the first sheet that holds rows, in the columns that the source names, or called by the languages.

    `line` is the number of the row. The value of a formula is what Excel saved of it.

    Raises:
      DataError: it is no workbook, openpyxl is not installed, or the first row has no such column.
    """
    (path,), (first, second) = part.paths, languages
    with open_rows(path) as (rows, others):
        if others:
            yield Noted(OTHER_SHEETS, others)
        places, has_header = None, False
        for number, cells in rows:
            if not any(cells):
                yield Skipped("blank line")
                continue
            if places is None:
                places, has_header = find_columns(path, cells, part.columns or (first, second))
                if has_header:
                    continue
            one, other = (cells[place] if place < len(cells) else "" for place in places)
            fault = check_texts((one, other))
            yield BadRow(path, number, fault) if fault else Pair((first, second), (one, other), path, number)


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
    if value is None or isinstance(value, bool):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return cell_text(str(value))
