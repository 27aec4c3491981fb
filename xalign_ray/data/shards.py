"""Token shards: rows as Parquet, in row groups that are read one at a time."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from xalign_ray.artifacts import unfinished
from xalign_ray.data.file_hashes import check_once
from xalign_ray.errors import DataError
from xalign_ray.text.rows import Rows, starts, sum_runs

ROW_GROUP = 512  # rows that are read together
CACHED_GROUPS = 256  # row groups kept in a process: small corpora are then read from disk once

ON_DISK, IN_ROWS = "side_", "segment_"  # how a column on disk is called, and its field of Rows
_LISTS = pa.list_(pa.field("element", pa.int32(), nullable=False))


class ShardWriter:
    """Writes a shard group by group under a temporary name; it appears under its own when the block ends well.

    The same rows in the same calls give the same bytes: no dictionary pages, no statistics, no timestamps. A shard
    without rows is not written. `groups` are the rows of each row group.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.groups: list[int] = []
        self._temporary = unfinished(path)
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> ShardWriter:
        return self

    def append(self, rows: Rows) -> None:
        """Writes these rows as row groups of their own."""
        if not len(rows):
            return
        table = _as_table(rows)
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(
                self._temporary,
                table.schema,
                compression="zstd",
                use_byte_stream_split=True,  # most bytes of small numbers are zero: packed in half the time
                use_dictionary=False,
                write_statistics=False,
                store_schema=False,
            )
        self._writer.write_table(table, row_group_size=ROW_GROUP)
        self.groups += [min(ROW_GROUP, len(rows) - begin) for begin in range(0, len(rows), ROW_GROUP)]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._writer is None:
            return
        self._writer.close()
        if kind is None:
            os.replace(self._temporary, self.path)
        else:
            self._temporary.unlink(missing_ok=True)


@lru_cache(maxsize=CACHED_GROUPS)
def read_group(path: str, file_hash: str, group: int) -> Rows:
    """One row group of a shard.

    Raises:
        DataError: if the file's bytes are not those that prepare wrote; checked once a process.
    """
    return _as_rows(_open(path, file_hash).read_row_group(group))


@lru_cache(maxsize=256)
def _open(path: str, file_hash: str) -> pq.ParquetFile:
    file = pq.ParquetFile(check_once(Path(path), file_hash))
    if any(field.type != _LISTS for field in file.schema_arrow):  # pickled objects would run what they hold
        raise DataError(f"{path} is no shard: a column of it holds something else than lists of numbers.")
    return file


def _as_table(rows: Rows) -> pa.Table:
    row_words = sum_runs(rows.segment_words, rows.row_segments)
    row_pieces = sum_runs(rows.word_length, row_words)
    row_links = sum_runs(rows.segment_links, rows.row_segments)
    columns = {
        "pieces": _lists(rows.pieces, row_pieces),
        "word_length": _lists(rows.word_length, row_words),
        "entry": _lists(rows.entry, row_words),
        "side_words": _lists(rows.segment_words, rows.row_segments),
        "side_language": _lists(rows.segment_language, rows.row_segments),
        "side_links": _lists(rows.segment_links, rows.row_segments),
        "link_from": _lists(rows.link_from, row_links),
        "link_to": _lists(rows.link_to, row_links),
    }
    schema = pa.schema([pa.field(name, _LISTS, nullable=False) for name in columns])
    return pa.table(columns, schema)


def _lists(values: NDArray[np.int32], lengths: NDArray[np.integer]) -> pa.ListArray:
    assert len(values) < 2**31, "Parquet lists of one table have 32-bit offsets: append fewer rows at once"
    offsets = np.concatenate((starts(lengths), [len(values)])).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.astype(np.int32)), type=_LISTS)


def _as_rows(table: pa.Table) -> Rows:
    flat: dict[str, NDArray[np.int32]] = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        flat[name.replace(ON_DISK, IN_ROWS)] = column.flatten().to_numpy()
        if name == "side_words":
            flat["row_segments"] = column.value_lengths().to_numpy()
    return Rows(**flat)
