"""Reads Parquet files with a `text` column, as wikimedia/wikipedia has, or of text that `prepare` has parsed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from xalign_ray.data.sources.broken import DAMAGED, BrokenFile, BrokenFileError
from xalign_ray.data.sources.files import open_bytes, size_of
from xalign_ray.data.sources.open import Span
from xalign_ray.data.sources.parts import PART_BYTES, Part, spans_between
from xalign_ray.data.sources.records import EMPTY_DOCUMENT, BadRow, Document, Record
from xalign_ray.data.sources.stored import TEXTS, is_parsed_text, read_as_source
from xalign_ray.errors import DataError

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

COLUMN = "text"
ROWS_AT_ONCE = 256  # articles are read in batches of so many, so that a row group of any size takes little memory


def split_parquet(format_: str, paths: Sequence[str]) -> list[Part]:
    """Row groups, as many as hold about 64 MB of text together; `first_line` is the number of the first row.

    Raises:
      DataError: a file is no Parquet, is cut short, or has no column `text`.
    """
    return [part for path in paths for part in _split(format_, path)]


def _split(format_: str, path: str) -> Iterator[Part]:
    with open_parquet(path) as file:
        metadata, column = file.metadata, _column(path, file)
        borders, first_lines, held, row = [0], [1], 0, 1
        for group in range(metadata.num_row_groups):
            described = metadata.row_group(group)
            size = described.column(column).total_uncompressed_size
            if held and held + size > PART_BYTES:
                borders.append(group)
                first_lines.append(row)
                held = 0
            held, row = held + size, row + described.num_rows
    for span, line in zip(spans_between(borders), first_lines, strict=True):
        yield Part(format_, (path,), (span,), line)


def read_parquet(part: Part, languages: Sequence[str]) -> Iterator[Record]:
    """Documents of some row groups; `line` is the number of the row in the file. Other columns are not read.

    Raises:
      BrokenFileError: a page is damaged; after the rows before it.
    """
    (path,), (span,), (language,) = part.paths, part.spans, languages
    number = part.first_line - 1
    with open_parquet(path) as file:
        column = _column(path, file)
        for group in groups_of(file, span):
            try:
                if is_parsed_text(file):
                    yield from read_as_source(file, group, path, languages)
                    continue
                for text in _texts(file, group):
                    number += 1
                    paragraphs = tuple(line for raw in (text or "").split("\n") if (line := raw.strip()))
                    yield Document(language, paragraphs, path, number) if paragraphs else _bad(path, number, text)
            except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
                raise BrokenFileError(_broken(file, path, span, group, column)).after("row", number) from error


def groups_of(file: ParquetFile, span: Span) -> range:
    """The numbers of the row groups of a span."""
    return range(span.start, file.metadata.num_row_groups if span.end is None else span.end)


def _texts(file: ParquetFile, group: int) -> Iterator[str | None]:
    for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=[group], columns=[COLUMN]):
        yield from batch.column(0).to_pylist()


def _broken(file: ParquetFile, path: str, span: Span, group: int, column: int) -> BrokenFile:
    """Of a part that cannot be read from a row group on."""

    def packed(groups: range) -> int:
        return sum(file.metadata.row_group(one).column(column).total_compressed_size for one in groups)

    damaged = file.metadata.row_group(group).column(column)
    offset = damaged.dictionary_page_offset or damaged.data_page_offset
    share = packed(groups_of(file, Span(group, span.end))) / packed(range(file.metadata.num_row_groups))
    return BrokenFile(path, DAMAGED, offset, size_of(path), share)


def _bad(path: str, number: int, text: str | None) -> BadRow:
    return BadRow(path, number, "row has no text" if text is None else EMPTY_DOCUMENT)


def _column(path: str, file: ParquetFile) -> int:
    from pyarrow import types

    names = file.schema_arrow.names
    leaves = [file.metadata.schema.column(number).path for number in range(file.metadata.num_columns)]
    if is_parsed_text(file):
        return leaves.index(TEXTS)
    if COLUMN not in names:
        raise DataError(f"{path} has no column '{COLUMN}'; its columns are {', '.join(names)}.")
    kind = file.schema_arrow.field(COLUMN).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        # Such as Ray Data's pickled objects, which run what they hold when they are read.
        raise DataError(f"{path}: its column '{COLUMN}' is not plain text but {kind}.")
    if COLUMN not in leaves:
        raise DataError(f"{path}: its column '{COLUMN}' is not plain text.")
    return leaves.index(COLUMN)


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
