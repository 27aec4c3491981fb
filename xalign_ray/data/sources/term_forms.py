"""Finds the form of a dictionary by looking at its first bytes and lines."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from xalign_ray.config.sources import DictionaryFormat
from xalign_ray.data.sources.broken import held_back
from xalign_ray.data.sources.first_rows import decoded, is_workbook, table_suffix
from xalign_ray.data.sources.open import number_lines
from xalign_ray.data.sources.term_files import files_of
from xalign_ray.data.sources.term_tables import LOOKED_AT
from xalign_ray.errors import DataError
from xalign_ray.work.file_checks import HEAD_BYTES

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
