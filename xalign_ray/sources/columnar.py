"""Tables of columns: Parquet and Arrow, as `datasets` and pandas save them; columns within structs are dotted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from xalign_ray.errors import DataError
from xalign_ray.sources.open import DAMAGED, broken_file, open_bytes, size_of
from xalign_ray.sources.records import PART_BYTES, Part, spans_between
from xalign_ray.sources.tables import TEXT, SourceRow, SourceTable, TableFile

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema, Table
    from pyarrow.parquet import ParquetFile

ROWS_AT_ONCE = 256  # rows of a batch: a row group of any size then takes little memory
_FILE_MAGIC = b"ARROW1"


def split_parquet(format_: str, paths: Sequence[str]) -> list[Part]:
    """Row groups, as many as hold about 64 MB of text together; `first_line` is the number of the first row.

    Raises:
        DataError: a file is no Parquet, or is cut short.
    """
    parts: list[Part] = []
    for path in paths:
        borders, first_lines, held, row = [0], [1], 0, 1
        with open_parquet_file(path) as file:
            leaf = _leaf(file, TEXT)
            for group in range(file.metadata.num_row_groups):
                described = file.metadata.row_group(group)
                size = described.total_byte_size if leaf is None else described.column(leaf).total_uncompressed_size
                if held and held + size > PART_BYTES:
                    borders.append(group)
                    first_lines.append(row)
                    held = 0
                held, row = held + size, row + described.num_rows
        spans = zip(spans_between(borders), first_lines, strict=True)
        parts += [Part(format_, (path,), (span,), line) for span, line in spans]
    return parts


def open_parquet(file: TableFile) -> SourceTable:
    """A Parquet file; the span of `file` counts its row groups.

    Raises:
        DataError: it is no Parquet file, or is cut short.
    """
    path, span = file.path, file.chunks.span
    with open_parquet_file(path) as opened:
        names, kinds = _columns(opened.schema_arrow)

    def read(keys: Sequence[str]) -> Iterator[SourceRow]:
        number = file.first_line - 1
        with open_parquet_file(path) as opened:
            last = opened.metadata.num_row_groups if span.end is None else span.end
            for group in range(span.start, last):
                try:
                    for batch in opened.iter_batches(ROWS_AT_ONCE, row_groups=[group], columns=top_level(opened, keys)):
                        for cells in rows_of(batch, keys):
                            number += 1
                            yield SourceRow(number, cells)
                except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
                    damaged = opened.metadata.row_group(group).column((_leaf(opened, keys[0]) or 0) if keys else 0)
                    offset = damaged.dictionary_page_offset or damaged.data_page_offset
                    raise broken_file(path, DAMAGED, offset, size_of(path)) from error

    return SourceTable(path, names, read, kinds)


def open_arrow(file: TableFile) -> SourceTable:
    """An Arrow file of either kind.

    Raises:
        DataError: it is no Arrow file, or its beginning is damaged.
    """
    path = file.path
    with open_arrow_file(path) as (schema, _):
        names, kinds = _columns(schema)

    def read(keys: Sequence[str]) -> Iterator[SourceRow]:
        number = 0
        with open_arrow_file(path) as (_, batches):
            try:
                for batch in batches:
                    for begin in range(0, batch.num_rows, ROWS_AT_ONCE):
                        for cells in rows_of(batch.slice(begin, ROWS_AT_ONCE), keys):
                            number += 1
                            yield SourceRow(number, cells)
            except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
                raise broken_file(path, DAMAGED, 0, size_of(path)) from error

    return SourceTable(path, names, read, kinds)


def _columns(schema: Schema) -> tuple[list[str], dict[str, str]]:
    """The columns, those within structs by dotted names, and what those hold that do not hold text."""
    from pyarrow import types

    kinds: dict[str, str] = {}
    for field in _flat(schema.empty_table()).schema:
        kind = field.type.value_type if types.is_dictionary(field.type) else field.type
        if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
            kinds[field.name] = "number"
        else:
            is_list = types.is_list(kind) or types.is_large_list(kind)
            is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
            kinds[field.name] = "list" if is_list else "text" if is_text else str(field.type)
    return [*kinds], {name: kind for name, kind in kinds.items() if kind != "text"}


def _flat(table: Table) -> Table:
    """A table with a column for each field of a struct."""
    from pyarrow import types

    while any(map(types.is_struct, table.schema.types)):
        table = table.flatten()
    return table


def _leaf(file: ParquetFile, name: str) -> int | None:
    """The number of a column among those that Parquet stores, which are the fields of structs."""
    leaves = [file.metadata.schema.column(number).path for number in range(file.metadata.num_columns)]
    return leaves.index(name) if name in leaves else None


def top_level(file: ParquetFile, names: Sequence[str]) -> list[str]:
    """The columns that hold these, which may be fields of structs."""
    there = file.schema_arrow.names
    return list(dict.fromkeys(name if name in there else name.split(".")[0] for name in names))


def rows_of(batch: RecordBatch, names: Sequence[str]) -> Iterator[tuple[str | None, ...]]:
    """The cells of each row in these columns."""
    from pyarrow import Table

    table = _flat(Table.from_batches([batch]))
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)


@contextmanager
def open_parquet_file(path: str) -> Iterator[ParquetFile]:
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
def open_arrow_file(path: str) -> Iterator[tuple[Schema, Iterator[RecordBatch]]]:
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
