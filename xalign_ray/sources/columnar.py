"""Reads JSON, Parquet and Arrow, as `datasets` saves them: a document in a column of text, or a pair in two."""

from __future__ import annotations

import codecs
import json
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from xalign_ray.config.language_codes import NAMES
from xalign_ray.config.sources import WHERE
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources.language_id import column_of, is_called
from xalign_ray.sources.open import (
    CHUNK_BYTES,
    DAMAGED,
    MAX_LINE_BYTES,
    NOT_UTF8,
    Chunks,
    Line,
    broken_file,
    open_bytes,
    read_lines,
    size_of,
)
from xalign_ray.sources.records import (
    PART_BYTES,
    BadRow,
    Part,
    Record,
    Skipped,
    list_some,
    make_document,
    make_pair,
    spans_between,
)
from xalign_ray.sources.stored import TEXTS, is_parsed_text, read_as_source

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema
    from pyarrow.parquet import ParquetFile


NOT_JSON = "it is not JSON"
_PAIR = "translation"  # the key of an object that holds a pair under its languages
TEXT = "text"  # the key or column of a document, where the source names no other
_BETWEEN = re.compile(r"[\s,]*")
Make = Callable[[Sequence[str | None], int], Record | Skipped]  # of the texts of a row and its number
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_NAMES = {code: name.lower() for name, code in NAMES.items()}


def read_jsonl(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped]:
    """Documents or pairs of a JSON-lines file, under the keys that the source names; others are not read.

    Without these a document is under `text`, and a pair under its languages: their codes (`zh`) or English names
    (`chinese`), in the object itself or in its `translation`.
    """
    (path,), keys, make = part.paths, _keys_of(part, languages), records_of(part, languages)
    for line in read_lines(path, part.spans[0], part.first_line, json_lines=True):
        if not line.fault and not line.text.strip():
            yield Skipped("blank line")
            continue
        texts, fault = _texts(line, keys)
        yield BadRow(path, line.number, fault) if fault else make(texts, line.number)


def read_json_array(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped]:
    """As read_jsonl, of a JSON file that is an array of objects; `line` counts the objects.

    Raises:
      BrokenFileError: the rest is no JSON.
    """
    (path,), keys, make = part.paths, _keys_of(part, languages), records_of(part, languages)
    for number, value in enumerate(read_array(path), start=1):
        texts, fault = _strings(value, keys)
        yield BadRow(path, number, fault) if fault else make(texts, number)


def read_array(path: str) -> Iterator[Any]:
    """The values of a JSON array of any length, one after the other; of one that breaks off, those before.

    Raises:
      BrokenFileError: the rest is no JSON, or a value is longer than 16 MB.
    """
    decoder, chunks = json.JSONDecoder(), Chunks(path)
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
        while (at := _between(text, at)) < len(text) and text[at] != "]":
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


def _between(text: str, at: int) -> int:
    """The next place from `at` on that is neither blank nor comma."""
    found = _BETWEEN.match(text, at)
    return found.end() if found else at


def one_line(text: str) -> str:
    """The text with every stretch of white space as one blank."""
    return " ".join(text.split())


def records_of(part: Part, languages: Sequence[str], text_of: Callable[[str], str] = one_line) -> Make:
    """Makes a document of the text of a row, or a pair of its two, each on one line, by the number of languages."""
    (path,) = part.paths
    condition = part.columns[2] if part.columns and len(part.columns) > 2 else ""

    def document(row: Sequence[str | None], number: int) -> Record:
        (text,) = row
        if text is None:
            return BadRow(path, number, "row has no text")
        return make_document(languages[0], text, path, number)

    def pair(row: Sequence[str | None], number: int) -> Record | Skipped:
        if condition and not fulfils(row[2], condition):
            return Skipped(f"not {condition}")
        texts = text_of(row[0] or ""), text_of(row[1] or "")
        return make_pair((languages[0], languages[1]), texts, path, number)

    return document if len(languages) == 1 else pair


def wanted_columns(part: Part, languages: Sequence[str]) -> Sequence[str]:
    """The columns that the source names, and that of its condition; else `text` of a document, or those called by the
    languages of a pair."""
    named = part.columns or (languages if len(languages) > 1 else (TEXT,))
    return [*named[:2], *(condition_of(where)[0] for where in named[2:])]


def condition_of(where: str) -> tuple[str, str, str]:
    """The column, the sign and the value of a condition such as `label=1`.

    Raises:
      ConfigError: it is none.
    """
    if (found := re.fullmatch(WHERE, where)) is None:
        raise ConfigError(f"'{where}' is no condition on a column. Write it as label=1 or 'score>=0.8'.")
    column, sign, value = found.groups()
    return column.strip(), sign, value.strip()


def fulfils(value: Any, where: str) -> bool:
    """Whether a cell fulfils a condition: by numbers where both are, else by what is written."""
    _, sign, wanted = condition_of(where)
    one, other = number_of(value), number_of(wanted)
    if one is not None and other is not None:
        return _SIGNS[sign](one, other)
    return sign in ("=", "!=") and _SIGNS[sign](str(value).strip().casefold(), wanted.casefold())


def number_of(cell: Any) -> float | None:
    """The number in a cell, of true and false 1 and 0; None if it holds none."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return {"true": 1.0, "false": 0.0}.get(str(cell).strip().lower())


def _keys_of(part: Part, languages: Sequence[str]) -> list[tuple[str, ...]]:
    named = part.columns or len(languages) == 1
    return [(column,) for column in wanted_columns(part, languages)] if named else list(map(_keys, languages))


def _keys(code: str) -> tuple[str, ...]:
    names = (code, _NAMES[code]) if code in _NAMES else (code,)
    return (*(f"{_PAIR}.{name}" for name in names), *names)  # before `id`, which is often the number of a row


def _texts(line: Line, keys: Sequence[Sequence[str]]) -> tuple[list[str], str]:
    """The strings of a line's object, each under the first of its keys that is there, or why they cannot be had."""
    if line.fault:
        return [], line.fault
    try:
        value = json.loads(line.text)
    except (ValueError, RecursionError):
        return [], "line is not JSON"
    return _strings(value, keys)


def _strings(value: Any, keys: Sequence[Sequence[str]]) -> tuple[list[str], str]:
    texts = [_first(value, names) for names in keys]
    for text, names in list(zip(texts, keys, strict=True))[:2]:
        named = " or ".join(f"'{name}'" for name in names if "." not in name or len(names) == 1)
        if not isinstance(text, str):
            return [], f"line is no JSON object with a string {named}"
        if not _is_unicode(text):
            return [], f"{named} holds half a surrogate pair"
    return texts, ""


def _first(value: Any, names: Sequence[str]) -> Any:
    found = (find_key(value, name) for name in names)
    text = next((text for text in found if text is not None), None)
    if text is not None or len(names) == 1 or not isinstance(value, dict):
        return text
    above, code = [value, value.get(_PAIR)], names[0].removeprefix(f"{_PAIR}.")
    # A code that is written in another way: `amh` for am.
    alike = (inner.get(key) for inner in above if isinstance(inner, dict) for key in inner if is_called(key, code))
    return next((text for text in alike if isinstance(text, str)), None)


def find_key(value: Any, name: str) -> Any:
    """The value under a key, or under a dotted path of keys of objects within objects; None if it is not there."""
    if isinstance(value, dict) and name not in value and "." in name:
        above, _, rest = name.partition(".")
        return find_key(value.get(above), rest)
    return value.get(name) if isinstance(value, dict) else None


def _is_unicode(text: str) -> bool:
    """JSON can spell lone surrogates (backslash u d800), which no tokenizer and no file accepts."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


ROWS_AT_ONCE = 256  # read in batches of so many, so that a row group of any size takes little memory
_FILE_MAGIC = b"ARROW1"


def split_parquet(format_: str, paths: Sequence[str]) -> list[Part]:
    """Row groups, as many as hold about 64 MB of text together; `first_line` is the number of the first row.

    Raises:
      DataError: a file is no Parquet, or is cut short.
    """
    return [part for path in paths for part in _split(format_, path)]


def _split(format_: str, path: str) -> Iterator[Part]:
    borders, first_lines, held, row = [0], [1], 0, 1
    with open_parquet(path) as file:
        leaf = _leaf(file, TEXT) if format_ == "parquet" else None
        for group in range(file.metadata.num_row_groups):
            described = file.metadata.row_group(group)
            size = described.total_byte_size if leaf is None else described.column(leaf).total_uncompressed_size
            if held and held + size > PART_BYTES:
                borders.append(group)
                first_lines.append(row)
                held = 0
            held, row = held + size, row + described.num_rows
    for span, line in zip(spans_between(borders), first_lines, strict=True):
        yield Part(format_, (path,), (span,), line)


def check_columns(format_: str, path: str, columns: Sequence[str]) -> None:
    """Looks whether a Parquet or Arrow file has these columns of text.

    Raises:
      DataError: it has not, or is none of these files.
    """
    if format_.startswith("arrow"):
        with open_arrow(path) as (schema, _):
            find_text_columns(path, schema, columns)
        return
    with open_parquet(path) as file:
        if not is_parsed_text(file):
            find_text_columns(path, file.schema_arrow, columns)


def read_parquet(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped]:
    """Documents or pairs of some row groups, in the columns that the source names; `line` is the number of the row.

    Without these documents are in `text`, and pairs in columns that are called by the languages: `en`,
    `sentence_eng_Latn` or, within a struct, `translation.en`.

    Raises:
      DataError: there is no such column of text.
      BrokenFileError: a page is damaged.
    """
    (path,), (span,), make = part.paths, part.spans, records_of(part, languages)
    number = part.first_line - 1
    with open_parquet(path) as file:
        is_parsed = is_parsed_text(file)
        names = [TEXTS] if is_parsed else find_text_columns(path, file.schema_arrow, wanted_columns(part, languages))
        for group in range(span.start, file.metadata.num_row_groups if span.end is None else span.end):
            try:
                if is_parsed:
                    yield from read_as_source(file, group, path, languages)
                    continue
                for batch in text_batches(file, names, ROWS_AT_ONCE, [group]):
                    for row in rows_of(batch, names):
                        number += 1
                        yield make(row, number)
            except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
                damaged = file.metadata.row_group(group).column(_leaf(file, names[0]) or 0)
                offset = damaged.dictionary_page_offset or damaged.data_page_offset
                raise broken_file(path, DAMAGED, offset, size_of(path)) from error


def read_arrow(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped]:
    """As read_parquet, of an Arrow file of either kind.

    Raises:
      BrokenFileError: a batch is damaged, where in the file is not known.
    """
    (path,), make = part.paths, records_of(part, languages)
    number = 0
    with open_arrow(path) as (schema, batches):
        names = find_text_columns(path, schema, wanted_columns(part, languages))
        try:
            for batch in batches:
                for begin in range(0, batch.num_rows, ROWS_AT_ONCE):
                    for row in rows_of(batch.slice(begin, ROWS_AT_ONCE), names):
                        number += 1
                        yield make(row, number)
        except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
            raise broken_file(path, DAMAGED, 0, size_of(path)) from error


def _leaf(file: ParquetFile, name: str) -> int | None:
    """The number of a column among those that Parquet stores, which are the fields of structs."""
    leaves = [file.metadata.schema.column(number).path for number in range(file.metadata.num_columns)]
    name = TEXTS if is_parsed_text(file) else name
    return leaves.index(name) if name in leaves else None


def text_batches(
    file: ParquetFile, names: Sequence[str], size: int, groups: Sequence[int] | None = None
) -> Iterator[RecordBatch]:
    """Batches of the columns that hold these columns of text, which may be fields of structs; of all groups if None."""
    there = file.schema_arrow.names
    whole = list(dict.fromkeys(name if name in there else name.split(".")[0] for name in names))
    return file.iter_batches(size, row_groups=groups, columns=whole)


def rows_of(batch: RecordBatch, names: Sequence[str]) -> Iterator[tuple[str | None, ...]]:
    """The texts of each row in these columns."""
    return zip(*(_column_texts(batch, name) for name in names), strict=True)


def _column_texts(batch: RecordBatch, name: str) -> list[str | None]:
    """The texts of a column, or of a field of a struct by its dotted name."""
    if name in batch.schema.names:
        return batch.column(name).to_pylist()
    first, *inner = name.split(".")
    values = batch.column(first).to_pylist()
    for key in inner:
        values = [value and value[key] for value in values]
    return values


def find_text_columns(path: str, schema: Schema, wanted: Sequence[str]) -> list[str]:
    """The names of columns of text: as they are wanted, within `translation`, or called by a language that is wanted.

    Raises:
      DataError: there is no such column of text; names those that there are.
    """
    names = [name for name, kind in kinds_of_columns(schema).items() if kind == "text"]
    found = [column_of(names, one) for one in wanted[:2]] + [one if one in schema.names else "" for one in wanted[2:]]
    if "" in found:
        missing = wanted[found.index("")]
        # Others may be such as Ray Data's pickled objects, which run what they hold when they are read.
        others = [f"{field.name} ({field.type})" for field in schema if field.name not in names]
        listed = list_some(names) or f"none: {list_some(others)}"
        raise DataError(f"{path} has no column of text '{missing}'; it has {listed}.")
    return found


def kinds_of_columns(fields: Any, above: str = "") -> dict[str, str]:
    """The columns of text, numbers and lists, those of structs by dotted names, and which of these they hold."""
    from pyarrow import types

    kinds: dict[str, str] = {}
    for field in fields:
        kind = field.type.value_type if types.is_dictionary(field.type) else field.type
        if types.is_struct(kind):
            kinds |= kinds_of_columns(kind.fields, f"{above}{field.name}.")
        elif types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
            kinds[above + field.name] = "text"
        elif types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
            kinds[above + field.name] = "number"
        elif types.is_list(kind) or types.is_large_list(kind):
            kinds[above + field.name] = "list"
    return kinds


@contextmanager
def open_parquet(path: str) -> Iterator[ParquetFile]:
    """A Parquet file.

    Raises:
      DataError: it is none, or is cut short.
    """
    import pyarrow
    from pyarrow.parquet import ParquetFile

    with open_bytes(path) as raw:
        try:
            file = ParquetFile(raw)
        except pyarrow.ArrowInvalid as error:
            raise DataError(f"{path} is no Parquet file, or is cut short ({error}). Fetch it again.") from None
        with file:
            yield file


@contextmanager
def open_arrow(path: str) -> Iterator[tuple[Schema, Iterator[RecordBatch]]]:
    """The schema and the batches of an Arrow file, of the stream form or of the one that can be entered anywhere.

    Raises:
      DataError: it is none, or its beginning is damaged.
    """
    import pyarrow
    from pyarrow import ipc

    with ExitStack() as stack:
        raw = stack.enter_context(open_bytes(path))
        head = raw.read(len(_FILE_MAGIC))
        raw.seek(0)
        try:
            if head == _FILE_MAGIC:
                file = stack.enter_context(ipc.open_file(raw))
                opened = file.schema, (file.get_batch(number) for number in range(file.num_record_batches))
            else:
                stream = stack.enter_context(ipc.open_stream(raw))
                opened = stream.schema, iter(stream)
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise DataError(f"{path} is no Arrow file, or is cut short ({error}). Fetch or save it again.") from None
        yield opened
