"""First rows of a file of pairs as a table of text columns; the form is found by the file's first bytes."""

from __future__ import annotations

import codecs
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_ray.config.language_codes import is_language
from xalign_ray.config.sources import PairFormat
from xalign_ray.errors import DataError
from xalign_ray.sources.columnar import (
    find_key,
    kinds_of_columns,
    open_arrow,
    open_parquet,
    read_array,
    rows_of,
    text_batches,
)
from xalign_ray.sources.language_id import find_pair, language_of_file, language_of_name, without_region
from xalign_ray.sources.open import (
    NOT_UTF8,
    BrokenFileError,
    Chunks,
    check_lines,
    open_bytes,
    read_as,
    read_lines,
)
from xalign_ray.sources.records import list_reasons, list_some
from xalign_ray.sources.table_pairs import (
    DELIMITERS,
    cell_text,
    check_half_header,
    csv_rows,
    find_columns,
    first_cells,
    is_repeated,
    read_head,
)
from xalign_ray.sources.text import member_names
from xalign_ray.sources.translation_files import SOURCE, is_po, open_po, po_languages, po_texts, read_units, unit_texts
from xalign_ray.sources.xml import stream_elements
from xalign_ray.work.file_checks import HEAD_BYTES

if TYPE_CHECKING:
    from pyarrow import Schema

ROWS = 500  # looked at
MAX_TEXTS = 64  # within one object: more are a table
MAX_NAME = 64  # characters of a column's name
FITTING = 0.5  # of the rows: those that have as many columns as the first
LETTERS = 0.5  # of the characters of most texts
MAX_KINDS = 20  # of labels, such as parts of speech, that stand ten times or more each
_TAGS = """
    a abbr adj adjective adp adv adverb art article aux auxiliary cconj conj conjunction det determiner interj
    interjection intj n name nf nm nn noun num number numeral part particle phrase postp pr prefix prep preposition pron
    pronoun propn proper-noun punct sconj suffix sym v vb verb vi vt x
"""
_PARTS_OF_SPEECH = frozenset(_TAGS.split())
_ADDRESS = re.compile(r"\s*(https?://|www\.|\S+@\S+\.\w+\s*$)")
_ARROW = (b"ARROW1", b"\xff\xff\xff\xff")
_OLE = b"\xd0\xcf\x11\xe0"
_MO = (b"\xde\x12\x04\x95", b"\x95\x04\x12\xde")


@dataclass(frozen=True)
class FirstRows:
    """A source of pairs as far as it was looked at.

    Attributes:
        form: what a user calls it: CSV, Parquet, TMX.
        names: of its columns; numbers from 1 where it has no header; of line-aligned files and of TMX the languages.
        rows: the texts of each row, empty where there is none.
        is_whole: whether these are all rows.
        by_language: whether a column is a language and not a place: line-aligned files, TMX, OPUS.
        lists: the columns that hold lists, which are not read.
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
    if raw.startswith(b"PK\x03\x04"):
        return _workbook(path) if is_workbook(path) else _archive(path)
    if raw.startswith(_OLE):
        raise DataError(f"{path} is an old Excel workbook or Word file. Save its sheet as .xlsx, or as CSV in UTF-8.")
    if raw.startswith(_MO):
        raise DataError(f"{path} is a compiled catalogue of gettext. Give the .po file that it was made of.")
    if _is_tar(raw):
        return _archive(path)
    head = next(iter(Chunks(path)), b"")[:HEAD_BYTES]
    if _is_tar(head):
        return _archive(path)
    if raw.startswith(b"PAR1"):
        return _parquet(path)
    if raw.startswith(_ARROW):
        return look_at_arrow([path], "Arrow")
    text = decoded(head).lstrip()
    if "<tmx" in text.lower():
        return _tmx(path)
    if "<xliff" in text.lower():
        return _xliff(path)
    if is_po(text):
        return _po(path)
    if text.startswith("[") and (found := _json_array(path)):
        return found
    if text.startswith("{"):
        return _json_lines(path)
    return _lines(path)


def decoded(head: bytes) -> str:
    """The beginning of a file as text, in UTF-8 or UTF-16."""
    is_utf16 = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return head.decode("utf-16" if is_utf16 else "utf-8", "ignore").removeprefix("\ufeff")


def _table(
    paths: Sequence[str],
    format_: PairFormat,
    form: str,
    names: Sequence[str],
    rows: Iterator[Sequence[Any]],
    lists: Sequence[str] = (),
) -> FirstRows:
    shown = islice(rows, ROWS + 1)
    seen = [tuple("" if cell is None else cell_text(str(cell)) for cell in row) for row in shown]
    return FirstRows(tuple(paths), format_, form, tuple(names), seen[:ROWS], len(seen) <= ROWS, lists=tuple(lists))


def _parquet(path: str) -> FirstRows:
    with open_parquet(path) as file:
        names, lists = _columns(path, file.schema_arrow)
        rows = (row for batch in text_batches(file, names, ROWS) for row in rows_of(batch, names))
        return _table([path], "parquet_pairs", "Parquet", names, rows, lists)


def _columns(path: str, schema: Schema) -> tuple[list[str], list[str]]:
    """The columns of text and numbers, and those of lists."""
    kinds = kinds_of_columns(schema)
    if "text" not in kinds.values() and "list" not in kinds.values():
        some = list_some([f"{field.name} ({field.type})" for field in schema])
        raise DataError(f"{path} has no column of text; it has {some or 'none'}.")
    lists = [name for name, kind in kinds.items() if kind == "list"]
    return [name for name in kinds if name not in lists], lists


def look_at_arrow(paths: Sequence[str], form: str) -> FirstRows:
    """The first rows of Arrow files that have the same columns."""
    with open_arrow(paths[0]) as (schema, batches):
        names, lists = _columns(paths[0], schema)
        rows = (row for batch in batches for row in rows_of(batch.slice(0, ROWS + 1), names))
        return _table(paths, "arrow_pairs", form, names, rows, lists)


def _tmx(path: str) -> FirstRows:
    units = [unit_texts(unit) for unit in islice(stream_elements(Chunks(path), ("tu",)), ROWS + 1)]
    texts = [_without_regions(unit) for unit in units]
    names = [code for code, _ in Counter(code for unit in texts for code in unit).most_common() if code]
    if not names:
        raise DataError(f"{path} has no unit with a language. Check that it is a whole TMX file.")
    known = [name for name in names if is_language(name)]
    if len(known) < 2 <= len(names):
        unknown = ", ".join(f"'{name}'" for name in names if name not in known)
        raise DataError(f"{path} calls a language {unknown}, which is no code. Write a code (xml:lang) in its place.")
    names = known
    rows = [tuple(unit.get(code, "") for code in names) for unit in texts[:ROWS]]
    return FirstRows((path,), "tmx", "TMX", tuple(names), rows, len(units) <= ROWS, by_language=True)


def _without_regions(unit: Mapping[str, str]) -> dict[str, str]:
    """The first text of each language."""
    texts: dict[str, str] = {}
    for code, text in unit.items():
        texts.setdefault(without_region(code), text)
    return texts


def _xliff(path: str) -> FirstRows:
    units = list(islice(read_units(path), ROWS + 1))
    full = [unit for unit in units[:ROWS] if not unit.skipped]
    if not full:
        raise DataError(f"{path} holds no translation that is finished, in {len(units):,} units.")
    is_whole = len(units) <= ROWS
    if not all(map(all, (unit.languages for unit in full))):
        return FirstRows((path,), "xliff", "XLIFF", ("source", "target"), [unit.texts for unit in full], is_whole)
    texts = [_without_regions(dict(zip(unit.languages, unit.texts, strict=True))) for unit in full]
    names = list(dict.fromkeys(code for row in texts for code in row))
    rows = [tuple(row.get(code, "") for code in names) for row in texts]
    return FirstRows((path,), "xliff", "XLIFF", tuple(names), rows, is_whole, by_language=True)


def _po(path: str) -> FirstRows:
    catalogue = open_po(path)
    source, target = po_languages(path, catalogue.metadata)
    rows = [po_texts(entry, catalogue.metadata) for entry in catalogue]
    rows = [row for row in rows if row[1]]
    names = (without_region(source) or SOURCE, without_region(target)) if target else ("msgid", "msgstr")
    return FirstRows((path,), "po", "PO", names, rows[:ROWS], len(rows) <= ROWS, by_language=bool(target))


def is_workbook(path: str) -> bool:
    """Whether a file is an Excel workbook."""
    with open_bytes(path) as file, suppress(zipfile.BadZipFile), zipfile.ZipFile(file) as archive:
        return "xl/workbook.xml" in archive.namelist()
    return False


def _workbook(path: str) -> FirstRows:
    cells = first_cells(path, ROWS + 2)
    width = max(map(len, cells))
    table = [row + [""] * (width - len(row)) for row in cells]
    return _with_header(path, "xlsx", "Excel", table, len(table) < ROWS + 2)


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def _archive(path: str) -> FirstRows:
    members = member_names(path)
    if any(member == "mimetype" or member.startswith("META-INF/") for member in members):
        raise DataError(f"{path} is a document of an office program. Save its table as CSV in UTF-8, and give that.")
    codes = [code for member in members if (code := language_of_file(member)[0])]
    if len(codes) != 2:
        raise DataError(
            f"{path} is an archive without two files that end in a language, as those of OPUS have (x.en, x.de). "
            "Unpack it, and give the files."
        )
    return FirstRows((path,), "opus", "archive of Moses files", tuple(codes), [], False, by_language=True)


def _json_array(path: str) -> FirstRows | None:
    values: list[Any] = []
    try:
        values.extend(islice(read_array(path), ROWS + 1))
    except BrokenFileError:
        if values and isinstance(values[0], dict):
            raise
    if not values or not isinstance(values[0], dict):
        if table_suffix(path) in (".json", ".jsonl"):
            raise DataError(f"{path} holds JSON, but no objects. Write an object each, with a text of both languages.")
        return None  # text that begins with a bracket
    return _objects(path, "json_pairs", "JSON array", values)


def _json_lines(path: str) -> FirstRows:
    lines = read_lines(path, json_lines=True)
    values = []
    for line in islice(lines, ROWS + 1):
        try:
            values.append(json.loads(line.text) if line.text.strip() else None)
        except (ValueError, RecursionError):
            values.append(None)
    if not isinstance(values[0], dict):
        raise DataError(f"{path} begins like JSON, but its first line is no whole object. Give an object a line.")
    objects = [value for value in values if isinstance(value, dict)]
    inside = [text for key in objects[0].values() for text in (key if isinstance(key, list | dict) else [key])]
    if len(objects) == 1 and (len(inside) > MAX_TEXTS or any(isinstance(key, list) for key in objects[0].values())):
        raise DataError(
            f"{path} is one JSON object of all texts ({list_some([*objects[0]])}), not a row. Write an object a line "
            'with a text of both languages, as pandas does by to_json(orient="records", lines=True).'
        )
    return _objects(path, "jsonl_pairs", "JSON lines", objects)


def _objects(path: str, format_: PairFormat, form: str, values: Sequence[Mapping[str, Any]]) -> FirstRows:
    kinds = dict(leaf for value in values for leaf in _leaves("", value))
    names = [name for name, kind in kinds.items() if kind is not list]
    if not names:
        raise DataError(f"{path}: its objects hold no text under their keys ({list_some([*values[0]])}).")
    rows = ([find_key(value, name) for name in names] for value in values if isinstance(value, dict))
    texts = ([cell if isinstance(cell, str | int | float) else None for cell in row] for row in rows)
    return _table([path], format_, form, names, texts, [name for name in kinds if name not in names])


def _leaves(above: str, value: Any) -> Iterator[tuple[str, type]]:
    """The keys of texts, numbers and lists, dotted within an object, and their types."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        if isinstance(inner, str | int | float | list):
            yield above + key, type(inner)
        elif isinstance(inner, dict) and not above:
            yield from _leaves(f"{key}.", inner)


def _lines(path: str) -> FirstRows | None:
    check_lines(path)
    lines = list(islice(read_lines(path), ROWS + 1))
    if not lines:
        raise DataError(f"{path} is empty.")
    strange = [line.number for line in lines if line.fault == NOT_UTF8]
    if len(strange) * 10 > len(lines):
        seen = f"line {strange[0]}{read_as(path, strange[0])}"
        raise DataError(f"{path} is not in UTF-8 ({seen}). Convert it: iconv -f ENCODING -t UTF-8 {Path(path).name}")
    good = [line for line in lines if not line.fault and line.text.strip()]
    suffix = table_suffix(path)
    tabs = sum("\t" in line.text for line in good)
    if suffix != ".csv" and good and (tabs > FITTING * len(good) or suffix in (".tsv", ".tab")):
        return _rows(path, "TSV")
    if suffix == ".csv" or any(_is_named(good[0].text.split(one)) for one in DELIMITERS if good):
        return _rows(path, "CSV")
    return None


def table_suffix(path: str) -> str:
    """The suffix of a file's name, without that of its packing."""
    name = Path(path)
    return (Path(name.stem) if name.suffix.lower() in (".gz", ".bz2", ".zst") else name).suffix.lower()


def _is_named(cells: Sequence[str]) -> bool:
    """Whether a first line is the header of pairs."""
    return sum(bool(language_of_name(cell)) for cell in cells) > 1 or bool(find_pair(cells))


def _rows(path: str, form: str) -> FirstRows:
    """The first rows of a CSV or TSV file."""
    head = read_head(path, "\t" if form == "TSV" else "")
    records = csv_rows(read_lines(path), head.delimiter, is_quoted=head.is_quoted)
    taken = list(islice((row for row in records if row.number >= head.first), ROWS + 1))
    seen = [row.cells for row in taken if not row.fault and any(row.cells)]
    if len(seen) < 2 and (faults := Counter(row.fault for row in taken if row.fault)):
        raise DataError(f"{path}: no row{' below its first' * len(seen)} can be read ({list_reasons(faults)}).")
    return _with_header(path, "tsv" if form == "TSV" else "csv", form, seen, len(seen) <= ROWS)


def _with_header(
    path: str, format_: PairFormat, form: str, table: Sequence[Sequence[str]], is_whole: bool
) -> FirstRows:
    """A table with names where its first row is a header; rows of another width are left out here."""
    if not table:
        raise DataError(f"{path}: no row can be read as {form}.")
    first, width = [cell.strip() for cell in table[0]], len(table[0])
    fitting = [row for row in table if len(row) == width]
    if len(fitting) <= FITTING * len(table):
        widths = Counter(len(row) for row in table).most_common(2)
        raise DataError(
            f"{path}: its rows differ in their number of columns ("
            f"{', '.join(f'{w} in {n:,} rows' for w, n in widths)}, {width} in the first). Quote fields that hold the "
            "delimiter, or write it as TSV."
        )
    has_header = is_header(first, fitting[1:])
    named = has_header and all(first.count(name) == 1 for name in first if name)
    if has_header and not named:
        double = next(name for name in first if name and first.count(name) > 1)
        raise DataError(f"{path}: two columns are called '{double}'. Rename one of them.")
    names = first if has_header else [str(number) for number in range(1, width + 1)]
    form = form if has_header else f"{form} without a header"
    return replace(_table([path], format_, form, names, iter(fitting[has_header:])), is_whole=is_whole)


def is_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a first row names columns: two languages or the two texts of a pair, or words far shorter than the rows'.

    Args:
        rows: those after it.
    """
    if any(len(name) > MAX_NAME for name in first) or not any(first):
        return False
    if _is_named(first):
        codes = [place for place, name in enumerate(first) if language_of_name(name)]
        return not codes or not rows or not is_repeated(first, rows[0], codes)  # each row may say its languages
    if not rows or any(len(name.split()) > 2 or not name[:1].isalpha() for name in first if name):
        return False
    columns = list(zip(*rows, strict=True))
    texts = [
        n for n, column in enumerate(columns) if first[n] and any(" " in cell or len(cell) > 20 for cell in column)
    ]
    lengths = {n: sorted(len(cell) for cell in columns[n])[len(rows) // 2] for n in texts}
    known = sum(bool(language_of_name(name)) for name in first)
    return bool(texts) and all(lengths[n] > (1 if known else 2) * len(first[n]) for n in texts)


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


def is_text(cells: Sequence[str]) -> bool:
    """Whether most cells are text in a language: letters that make different texts, no numbers, names, addresses, and
    neither parts of speech nor codes of languages or other labels over and over."""
    filled = [cell for cell in cells if cell]
    if not filled or (len(set(filled)) < len(filled) and all(map(language_of_name, set(filled)))):
        return False
    letters = [sum(map(_is_letter, cell)) > LETTERS * len(cell.replace(" ", "")) for cell in filled]
    codes = [" " not in cell and cell.isascii() and any(map(str.isdigit, cell)) for cell in filled]
    addresses = sum(bool(_ADDRESS.match(cell)) for cell in filled)
    kinds, one_word = len(set(filled)), not any(" " in cell for cell in filled)
    few = one_word and len(filled) > 20 and kinds <= max(2, min(len(filled) // 10, MAX_KINDS))
    tags = sum(cell.lower().strip(".").replace(" ", "-") in _PARTS_OF_SPEECH for cell in filled)
    is_label = few or (kinds < len(filled) < tags * 2)
    half = len(filled) / 2
    return sum(letters) > half and sum(codes) < half and addresses < half and not is_label


def _is_letter(character: str) -> bool:
    return character.isalpha() or not character.isascii()  # vowel signs are no letters to Python


# Names of the columns of a header whose terms translate each other, in lower case.
_HEADS = ({"source", "src", "term", "word", "headword", "l1"}, {"target", "tgt", "trg", "translation", "l2"})


def find_terms(
    path: str, rows: Sequence[Sequence[str]], languages: Sequence[str], columns: Sequence[str] | None
) -> tuple[tuple[int, int], bool]:
    """The places of the two terms, and whether the first of the rows is a header.

    Raises:
        DataError: the columns that are named are not there; or none are, and the first row names one language alone, or
            the first two are not terms.
    """
    width = max(map(len, rows))
    names = [name.strip() for name in [*rows[0], *[""] * (width - len(rows[0]))]]  # a header may name the first alone
    below = [cell for row in rows[1:2] for cell in row]
    if columns:
        (first, second), has_header = find_columns(path, names, columns, below)
        return (first, second), has_header
    codes = [without_region(language_of_name(name.lstrip("# "))) for name in names]
    called = [codes.index(code) if code in codes else None for code in languages]
    if called[0] is not None and called[1] is not None and not is_repeated(names, below, (called[0], called[1])):
        return (called[0], called[1]), True
    plain = [name.lower().lstrip("# ") for name in names]
    found = [next((place for place, name in enumerate(plain) if name in heads), None) for heads in _HEADS]
    if found[0] is not None and found[1] is not None:
        return (found[0], found[1]), True
    check_half_header(path, names, below, languages, called)
    below_it = [[row[place] for row in rows[1:] if place < len(row)] for place in range(width)]
    terms = [place for place, cells in enumerate(below_it) if not cells or is_text(cells)]
    if terms[:2] != [0, 1]:
        shown = ", ".join(f'"{place + 1}"' for place in ([*terms, width - 1] if terms else [0, width - 1])[:2])
        raise DataError(
            f"{path}: its first two columns do not hold terms of two languages; the first row has "
            f"{list_some([*map(repr, names)])}. Name the columns that do: columns: [{shown}], or by this row."
        )
    return (0, 1), False
