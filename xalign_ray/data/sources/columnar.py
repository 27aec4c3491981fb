"""Reads pairs out of columns of Parquet files and of Arrow files, as `datasets` saves them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from xalign_ray.data.sources.broken import DAMAGED, BrokenFile, BrokenFileError
from xalign_ray.data.sources.files import open_bytes, size_of
from xalign_ray.data.sources.jsonl import one_line
from xalign_ray.data.sources.moses import check_texts
from xalign_ray.data.sources.open import Span
from xalign_ray.data.sources.parquet import groups_of, open_parquet
from xalign_ray.data.sources.parts import PART_BYTES, Part, spans_between
from xalign_ray.data.sources.records import BadRow, Pair, Record
from xalign_ray.data.sources.stored import is_parsed_text, read_as_source
from xalign_ray.errors import DataError

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema

ROWS_AT_ONCE = 1024
_FILE_MAGIC = b"ARROW1"


def split_parquet_pairs(format_: str, paths: Sequence[str]) -> list[Part]:
    """Row groups, as many as hold about 64 MB together; `first_line` is the number of the first row.

    Raises:
      DataError: a file is no Parquet, or is cut short.
    """
    return [part for path in paths for part in _split(format_, path)]


def _split(format_: str, path: str) -> Iterator[Part]:
    borders, first_lines, held, row = [0], [1], 0, 1
    with open_parquet(path) as file:
        for group in range(file.metadata.num_row_groups):
            described = file.metadata.row_group(group)
            if held and held + described.total_byte_size > PART_BYTES:
                borders.append(group)
                first_lines.append(row)
                held = 0
            held, row = held + described.total_byte_size, row + described.num_rows
    for span, line in zip(spans_between(borders), first_lines, strict=True):
        yield Part(format_, (path,), (span,), line)


def read_parquet_pairs(part: Part, languages: Sequence[str]) -> Iterator[Record]:
    """Pairs of some row groups, in the columns that the source names or in those of the languages.

    Columns are called `en` or, within a struct, `translation.en`. `line` is the number of the row in the file.

    Raises:
      DataError: there is no such column of text.
      BrokenFileError: a page is damaged; after the rows before it.
    """
    (path,), (span,) = part.paths, part.spans
    with open_parquet(path) as file:
        if is_parsed_text(file):
            for group in groups_of(file, span):
                yield from read_as_source(file, group, path, languages)
            return
        names = find_text_columns(path, file.schema_arrow, part.columns or languages)
        yield from _pairs(part, languages, names, _parquet_batches(file, span, names))


def _parquet_batches(file: Any, span: Span, names: Sequence[str]) -> Iterator[RecordBatch]:
    columns = list(dict.fromkeys(name.split(".")[0] if name not in file.schema_arrow.names else name for name in names))
    for group in groups_of(file, span):
        yield from file.iter_batches(ROWS_AT_ONCE, row_groups=[group], columns=columns)


def read_arrow_pairs(part: Part, languages: Sequence[str]) -> Iterator[Record]:
    """Pairs of an Arrow file, whose columns are called as read_parquet_pairs says; both kinds of Arrow's files.

    Raises:
      DataError: it is no Arrow file, or there is no such column of text.
      BrokenFileError: a batch is damaged; after the rows before it.
    """
    (path,) = part.paths
    with open_arrow(path) as (schema, batches):
        names = find_text_columns(path, schema, part.columns or languages)
        slices = (
            batch.slice(begin, ROWS_AT_ONCE) for batch in batches for begin in range(0, batch.num_rows, ROWS_AT_ONCE)
        )
        yield from _pairs(part, languages, names, slices)


def _pairs(
    part: Part, languages: Sequence[str], names: Sequence[str], batches: Iterator[RecordBatch]
) -> Iterator[Record]:
    (path,), (first, second) = part.paths, languages
    number = part.first_line - 1
    try:
        for batch in batches:
            for row in zip(*(column_texts(batch, name) for name in names), strict=True):
                number += 1
                texts = (one_line(row[0] or ""), one_line(row[1] or ""))
                fault = check_texts(texts)
                yield BadRow(path, number, fault) if fault else Pair((first, second), texts, path, number)
    except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
        # Where in the file is not known: the bytes of a batch are its reader's.
        raise BrokenFileError(BrokenFile(path, DAMAGED, 0, size_of(path), 1.0)).after("row", number) from error


def column_texts(batch: RecordBatch, name: str) -> list[str | None]:
    """The texts of a column, or of a field of a struct by its dotted name."""
    if name in batch.schema.names:
        return batch.column(name).to_pylist()
    first, *inner = name.split(".")
    values = batch.column(first).to_pylist()
    for key in inner:
        values = [value and value[key] for value in values]
    return values


def find_text_columns(path: str, schema: Schema, wanted: Sequence[str]) -> list[str]:
    """The names of columns of text: as they are wanted, or within `translation`.

    Raises:
      DataError: there is no such column of text; names those that there are.
    """
    names = text_columns(schema)
    found = [next((name for name in (one, f"translation.{one}") if name in names), "") for one in wanted]
    if "" in found:
        missing = wanted[found.index("")]
        raise DataError(f"{path} has no column of text '{missing}'; it has {', '.join(names) or 'none'}.")
    return found


def text_columns(schema: Schema) -> list[str]:
    """The columns of text, those of structs by dotted names."""
    return list(_text_leaves("", schema))


def _text_leaves(above: str, fields: Any) -> Iterator[str]:
    from pyarrow import types

    for field in fields:
        kind = field.type.value_type if types.is_dictionary(field.type) else field.type
        if types.is_struct(kind):
            yield from _text_leaves(f"{above}{field.name}.", kind.fields)
        elif types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
            yield above + field.name


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
