"""Finds the form of files of pairs and dictionaries by their first bytes and lines; first rows of pairs as a table."""

from __future__ import annotations

import codecs
import re
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice, zip_longest
from pathlib import Path

from xalign_ray.config.sources import DictionaryFormat, PairFormat
from xalign_ray.errors import DataError
from xalign_ray.sources.archives import files_of, member_names
from xalign_ray.sources.columns import FirstRows, first_rows_of, is_header
from xalign_ray.sources.csv_rows import DELIMITERS
from xalign_ray.sources.formats import open_table
from xalign_ray.sources.language_id import language_of_file, language_of_name, without_packing
from xalign_ray.sources.open import (
    NOT_UTF8,
    BrokenFileError,
    Chunks,
    check_lines,
    open_bytes,
    read_lines,
)
from xalign_ray.sources.tables import ROWS, read_array, split_comments
from xalign_ray.sources.translation_files import is_po
from xalign_ray.work.file_checks import HEAD_BYTES

MAX_TEXTS = 64  # within one object: more are a table
FITTING = 0.5  # of the lines: those of TSV that have a tab
_ARROW = (b"ARROW1", b"\xff\xff\xff\xff")
_ZIP = b"PK\x03\x04"
_TITLES = {
    "csv": "CSV", "tsv": "TSV", "xlsx": "Excel", "jsonl": "JSON lines", "json": "JSON array", "parquet": "Parquet",
    "arrow": "Arrow", "tmx": "TMX", "xliff": "XLIFF", "po": "PO",
}  # fmt: skip


def look_at_file(path: str) -> FirstRows | None:
    """The first rows of a table, TMX or OPUS file; None for plain text.

    Raises:
        DataError: it is no data, or none of a form that is read here.
    """
    with open_bytes(path) as file:
        raw = file.read(HEAD_BYTES)
    if raw.startswith(_ZIP) and is_workbook(path):
        return look_at_table([path], "xlsx")
    if raw.startswith(_ZIP) or _is_tar(raw) or _is_tar(head := next(iter(Chunks(path)), b"")[:HEAD_BYTES]):
        return _archive(path)
    format_ = _container(head)
    if format_ == "json" and not _is_array_of_objects(path):
        format_ = None
    format_ = format_ or _format_of_lines(path)
    return look_at_table([path], format_) if format_ else None


def _container(head: bytes) -> PairFormat | None:
    """The form of a file, but of tables between delimiters and of text, by its first bytes."""
    text = decoded(head).lstrip()
    if head.startswith((b"PAR1", *_ARROW)):
        return "parquet" if head.startswith(b"PAR1") else "arrow"
    marks: dict[PairFormat, bool] = {
        "tmx": "<tmx" in text.lower(),
        "xliff": "<xliff" in text.lower(),
        "po": is_po(text),
        "json": text.startswith("["),
        "jsonl": text.startswith("{"),
    }
    return next((format_ for format_, is_there in marks.items() if is_there), None)


def decoded(head: bytes) -> str:
    """The beginning of a file as text, in UTF-8 or UTF-16."""
    is_utf16 = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return head.decode("utf-16" if is_utf16 else "utf-8", "ignore").removeprefix("\ufeff")


def look_at_table(paths: Sequence[str], format_: PairFormat, form: str = "") -> FirstRows:
    """The first rows of files of a container that have the same columns.

    Raises:
        DataError: no row can be read, it has no column of text, or its columns are not clear.
    """
    path, form, table = paths[0], form or _TITLES[format_], open_table(format_, paths[0])
    if table.rows == []:
        raise DataError(f"{path}: no row can be read as {form}.")
    first = first_rows_of(table)
    if format_ == "jsonl" and first.is_whole and len(first.rows) == 1 and len(first.names) > MAX_TEXTS:
        raise DataError(
            f"{path} is one JSON object of all texts. Write an object a line with a text of both languages."
        )
    form += "" if first.has_header else " without a header"
    return replace(first, paths=tuple(paths), format=format_, form=form)


def is_workbook(path: str) -> bool:
    """Whether a file is an Excel workbook."""
    with open_bytes(path) as file, suppress(zipfile.BadZipFile), zipfile.ZipFile(file) as archive:
        return "xl/workbook.xml" in archive.namelist()
    return False


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def _archive(path: str) -> FirstRows:
    members = member_names(path)
    codes = [code for member in members if (code := language_of_file(member)[0])]
    if len(codes) != 2:
        raise DataError(
            f"{path} is an archive without two files that end in a language, as those of OPUS have (x.en, x.de). "
            "Unpack it, and give the files."
        )
    return FirstRows(
        (path,), tuple(codes), [], is_whole=False, by_language=True, format="opus", form="archive of Moses files"
    )


def _is_array_of_objects(path: str) -> bool:
    """Whether a file that begins with a bracket is a JSON array of objects; else it is text.

    Raises:
        DataError: it is JSON, but no objects.
    """
    values: list[object] = []
    try:
        values.extend(islice(read_array(Chunks(path)), ROWS + 1))
    except BrokenFileError:
        if values and isinstance(values[0], dict):
            raise
    if values and isinstance(values[0], dict):
        return True
    if without_packing(path).suffix.lower() in (".json", ".jsonl"):
        raise DataError(f"{path} holds JSON, but no objects. Write an object each, with a text of both languages.")
    return False


def _format_of_lines(path: str) -> PairFormat | None:
    """TSV by tabs in most lines, CSV by its name or its header; None for plain text."""
    check_lines(path)
    lines = list(islice(read_lines(path), ROWS + 1))
    if not lines:
        raise DataError(f"{path} is empty.")
    strange = [line.number for line in lines if line.fault == NOT_UTF8]
    if len(strange) * 10 > len(lines):
        raise DataError(f"is not in UTF-8. Convert it: iconv -f ENCODING -t UTF-8 {Path(path).name}", path, strange[0])
    good = [line for line in lines if not line.fault and line.text.strip()]
    suffix = without_packing(path).suffix.lower()
    tabs = sum("\t" in line.text for line in good)
    if suffix != ".csv" and good and (tabs > FITTING * len(good) or suffix in (".tsv", ".tab")):
        return "tsv"
    return (
        "csv"
        if suffix == ".csv" or any(is_header(line.text.split(mark)) for line in good[:1] for mark in DELIMITERS)
        else None
    )


def look_at_texts(files: Mapping[str, str]) -> FirstRows:
    """The first rows of line-aligned files, by their languages or, where these are not known, by their names."""
    for path in files.values():
        check_lines(path, sentences=True)
    rows = list(islice(zip_longest(*map(read_lines, files.values())), ROWS + 1))
    texts = [tuple("" if line is None or line.fault else line.text.strip() for line in row) for row in rows]
    form = f"{len(files)} line-aligned files"
    is_whole = len(rows) <= ROWS
    return FirstRows(
        tuple(files.values()), tuple(files), texts[:ROWS], is_whole, by_language=True, format="moses", form=form
    )


# Finds the form of a dictionary by looking at its first bytes and lines.

_LOOKED_AT = 200  # lines by which the form of a dictionary is found
_JSON = re.compile(r'\{|\[\s*[\[{"]')


def find_dictionary_form(path: str) -> DictionaryFormat:
    """The form of a dictionary, plain, packed or in a zip.

    A container by its first bytes; else a table by tabs, by its name (.csv), or by one other delimiter in most lines;
    MUSE for two words a line.

    Raises:
        DataError: there is no file in the zip, or it is XML.
    """
    if is_workbook(path):
        return "xlsx"
    if (file := next(files_of(path), None)) is None:
        raise DataError(f"{path} holds no file of a dictionary.")
    head = next(iter(file), b"")[:HEAD_BYTES]
    text = decoded(head).lstrip()
    if text.startswith("<"):
        raise DataError(
            "is XML: docs/how-to/data.md converts TBX, TEI and Apertium's dix. Write a word and its translation a "
            "line, with a tab between them.",
            path,
        )
    container = _container(head)
    if container in ("parquet", "arrow") or (container in ("json", "jsonl") and _JSON.match(text)):
        return container
    if without_packing(file.path).suffix.lower() == ".csv":
        return "csv"
    full = [line.text for line in islice(split_comments(file)[1], _LOOKED_AT) if line.text.strip()]
    if sum("\t" in line for line in full) * 2 > len(full):
        is_header = any(map(language_of_name, full[0].lstrip("# ").split("\t")))
        return "tsv" if is_header or any(len(line.split()) != 2 for line in full) else "muse"
    has_terms = [[mark in line and all(map(str.strip, line.split(mark))) for line in full] for mark in DELIMITERS]
    return "csv" if max(map(sum, has_terms)) * 2 > len(full) else "muse"
