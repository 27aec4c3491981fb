"""Finds the form of files of pairs and dictionaries by their first bytes and lines; first rows of pairs as a table."""

from __future__ import annotations

import codecs
import re
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path

from xalign_ray.config.sources import DictionaryFormat, PairFormat
from xalign_ray.errors import DataError
from xalign_ray.sources.archives import files_of, member_names
from xalign_ray.sources.columns import is_header, is_named
from xalign_ray.sources.csv_rows import DELIMITERS
from xalign_ray.sources.formats import open_table
from xalign_ray.sources.language_id import find_pair, is_negative, language_of_file, language_of_name, without_packing
from xalign_ray.sources.open import (
    NOT_UTF8,
    BrokenFileError,
    Chunks,
    check_lines,
    open_bytes,
    read_lines,
)
from xalign_ray.sources.readings import MISSING
from xalign_ray.sources.records import list_reasons, list_some
from xalign_ray.sources.tables import ROWS, SourceTable, one_line, read_array, split_comments
from xalign_ray.sources.translation_files import is_po
from xalign_ray.work.file_checks import HEAD_BYTES

MAX_TEXTS = 64  # within one object: more are a table
FITTING = 0.5  # of the rows: those that have as many columns as the first
_ARROW = (b"ARROW1", b"\xff\xff\xff\xff")
_ZIP = b"PK\x03\x04"
_TITLES = {
    "csv": "CSV", "tsv": "TSV", "xlsx": "Excel", "jsonl": "JSON lines", "json": "JSON array", "parquet": "Parquet",
    "arrow": "Arrow", "tmx": "TMX", "xliff": "XLIFF", "po": "PO",
}  # fmt: skip


@dataclass(frozen=True)
class FirstRows:
    """A source of pairs as far as it was looked at.

    Attributes:
        form: its name for users: CSV, Parquet, TMX.
        names: of its columns; numbers from 1 where it has no header; of line-aligned files and of TMX the languages.
        rows: the texts of each row, empty where there is none.
        is_whole: whether these are all rows.
        by_language: whether a column is a language and not a place: line-aligned files, TMX, OPUS.
        lists: the columns of lists that are not read; lists of answers and of negatives are read.
    """

    paths: tuple[str, ...]
    format: PairFormat
    form: str
    names: tuple[str, ...]
    rows: list[tuple[str, ...]]
    is_whole: bool
    by_language: bool = False
    lists: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its file, for messages."""
        return self.paths[0]

    def column(self, place: int) -> list[str]:
        """The texts of each row in a column."""
        return [row[place] for row in self.rows]


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
    path, form = paths[0], form or _TITLES[format_]
    table = open_table(format_, path)
    names = [*table.names]
    if table.languages:
        names = table.languages()
    elif table.rows is not None:
        has_header = _has_header(table, form)
        names = names if has_header else [str(number) for number in range(1, len(names) + 1)]
        form = form if has_header else f"{form} without a header"
    else:
        names = [name for name in names if table.kinds.get(name, "number") == "number"]
    lists = [name for name, kind in table.kinds.items() if kind == "list"]
    places = {*find_pair([*names, *lists])}
    read = [name for n, name in enumerate(lists, len(names)) if n in places or is_negative(name)]
    names, lists = [*names, *read], [name for name in lists if name not in read]
    if not names or (not table.languages and not table.texts and not lists):
        held = list_some([f"{name} ({kind})" for name, kind in table.kinds.items()])
        raise DataError(
            f"{path} has no column of text; it has {held or 'none'}. Write a row with a text of each language."
        )
    rows, is_whole = table.first_rows(names)
    good = [row for row in rows if not row.fault]
    if format_ == "jsonl" and len(rows) == 1 and len(names) > MAX_TEXTS:
        raise DataError(
            f"{path} is one JSON object of all texts. Write an object a line with a text of both languages."
        )
    if not good and (faults := Counter(row.fault for row in rows)):
        below = " below its first" if table.rows else ""
        raise DataError(f"{path}: no row{below} can be read ({list_reasons(faults)}).")
    texts = [tuple(map(_cell_text, row.cells)) for row in good]
    by_language = table.languages is not None and "source" not in names
    return FirstRows(tuple(paths), format_, form, tuple(names), texts, is_whole, by_language, tuple(lists))


def _cell_text(cell: object) -> str:
    """The text of a cell, or the first of a list, on one line; none where a program wrote that there is no value."""
    cell = next(iter(cell), None) if isinstance(cell, list) else cell
    text = "" if cell is None or isinstance(cell, list | dict) else one_line(str(cell))
    return "" if text in MISSING else text


def _has_header(table: SourceTable, form: str) -> bool:
    """Whether the first row of a table names its columns.

    Raises:
        DataError: its rows differ in their number of columns, or two columns have one name.
    """
    rows = table.rows or []
    if not rows:
        raise DataError(f"{table.path}: no row can be read as {form}.")
    width = len(table.names) if form == "Excel" else len(rows[0])
    fitting = [row for row in rows if len(row) == width]
    if form != "Excel" and len(fitting) <= FITTING * len(rows):
        widths = Counter(len(row) for row in rows).most_common(2)
        raise DataError(
            f"{table.path}: its rows differ in their number of columns ("
            f"{', '.join(f'{w} in {n:,} rows' for w, n in widths)}, {width} in the first). Quote fields that hold the "
            "delimiter, or write it as TSV."
        )
    if not is_header(table.names, [[*row, *[""] * (width - len(row))] for row in rows[1:] if len(row) <= width]):
        return False
    if double := next((name for name, count in Counter(filter(None, table.names)).items() if count > 1), ""):
        raise DataError(f"{table.path}: two columns are called '{double}'. Rename one of them.")
    return True


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
    return FirstRows((path,), "opus", "archive of Moses files", tuple(codes), [], False, by_language=True)


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
        if suffix == ".csv" or any(is_named(good[0].text.split(delimiter)) for delimiter in DELIMITERS if good)
        else None
    )


def look_at_texts(files: Mapping[str, str]) -> FirstRows:
    """The first rows of line-aligned files, by their languages or, where these are not known, by their names."""
    for path in files.values():
        check_lines(path, sentences=True)
    rows = list(islice(zip_longest(*map(read_lines, files.values())), ROWS + 1))
    texts = [tuple("" if line is None or line.fault else line.text.strip() for line in row) for row in rows]
    form = f"{len(files)} line-aligned files"
    return FirstRows(
        tuple(files.values()), "moses", form, tuple(files), texts[:ROWS], len(rows) <= ROWS, by_language=True
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
