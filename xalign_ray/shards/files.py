"""Token shards: rows as Parquet, in row groups that are read one at a time, and the table of a folder's shards."""

from __future__ import annotations

import fcntl
import hashlib
import os
import resource
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from xalign_ray.errors import DataError, explain
from xalign_ray.shards.order import ROW_GROUP
from xalign_ray.shards.rows import Rows, concatenate, split_rows, starts, sum_runs
from xalign_ray.sources.stage import HINT
from xalign_ray.work.artifacts import hash_file, replacing, unfinished, write_atomic
from xalign_ray.work.storage import find_system, said_of, url_of

SHARD_GROUPS = 64  # row groups of a shard: its footer, read whenever it is opened, is tens of kilobytes
SHARD_ROWS = SHARD_GROUPS * ROW_GROUP
CACHED_GROUPS = 256  # row groups kept in a process, some 0.3 MiB each: those that short requests share, small corpora
FETCHED_AT_ONCE = 8  # shards of stores, each some 20 MiB
OPEN_SHARDS = 2048  # of a process, at most a third of a MiB each: four of each of the larger of a thousand languages

ON_DISK, IN_ROWS = "side_", "segment_"  # how a column on disk is called, and its field of Rows
LINKS = ("side_links", "link_from", "link_to")  # columns of word-aligned pairs only
VECTORS = ("side_vector", "vector")  # of pairs that a teacher has read
_LISTS = pa.list_(pa.field("element", pa.int32(), nullable=False))
_TAIL = 8  # bytes behind a footer: its length, and the mark of the format


class Written(NamedTuple):
    """A shard that was written: its file, the hash of the file's footer, and its rows."""

    path: Path
    footer: str
    rows: int


class ShardWriter:
    """Writes rows as shards of SHARD_ROWS, `NAME-0000.parquet` and so on, in row groups of ROW_GROUP.

    They are written under temporary names and appear together when the block ends well. The same rows give the same
    bytes, whatever the calls: no dictionary pages, no statistics, no timestamps. Without rows there is no shard.
    """

    def __init__(self, path: Path, links: bool = False, vectors: bool = False) -> None:
        """Of files next to `path` whose names begin with its name.

        Args:
            links: whether rows may have word alignments.
            vectors: whether they bring vectors of a teacher.
        """
        self.path = path
        self.shards: list[Written] = []
        self._columns = [name for name in _COLUMNS if (links or name not in LINKS) and (vectors or name not in VECTORS)]
        self._left: list[Rows] = []  # fewer than a row group
        self._rows = 0  # of the shard that is being written
        self._writer: pq.ParquetWriter | None = None
        self._unfinished: list[Path] = []

    def __enter__(self) -> ShardWriter:
        return self

    def append(self, rows: Rows) -> None:
        """Takes some rows more; whole row groups are written."""
        self._left.append(rows)
        if sum(map(len, self._left)) >= ROW_GROUP:
            *groups, last = split_rows(concatenate(self._left), ROW_GROUP)
            self._left = [last]
            self._write(groups)

    def _write(self, groups: Sequence[Rows]) -> None:
        for group in groups:
            table = _as_table(group, self._columns)
            if self._writer is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._unfinished.append(unfinished(self._name(len(self._unfinished))))
                self._writer = pq.ParquetWriter(
                    self._unfinished[-1],
                    table.schema,
                    compression="zstd",
                    use_byte_stream_split=True,  # most bytes of small numbers are zero: packed in half the time
                    use_dictionary=False,
                    write_statistics=False,
                    store_schema=False,
                    write_page_checksum=True,
                )
            self._writer.write_table(table)
            self._rows += len(group)
            if self._rows == SHARD_ROWS:
                self._close()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self.shards.append(Written(self._name(len(self.shards)), hash_footer(self._unfinished[-1]), self._rows))
            self._rows = 0

    def _name(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}-{number:04d}.parquet")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._write(list(split_rows(concatenate(self._left), ROW_GROUP)))
            self._close()
            for temporary, shard in zip(self._unfinished, self.shards, strict=True):
                os.replace(temporary, shard.path)
        elif self._writer is not None:
            self._writer.close()
        for temporary in self._unfinished:
            temporary.unlink(missing_ok=True)


@dataclass(frozen=True)
class Shard:
    """A shard to be read: its file, and the hash of the footer that prepare wrote."""

    path: str
    footer: str


@lru_cache(maxsize=CACHED_GROUPS)
def read_group(shard: Shard, group: int) -> Rows:
    """One row group of a shard; a shard in a store is fetched unless it is here.

    Raises:
        DataError: the shard is missing, or a part that is read was changed since; pages have checksums, and the
            footer's hash is in the manifest.
    """
    with _said_of(shard):
        return _as_rows(_open(shard).read_row_group(group, use_threads=False))


@contextmanager
def _said_of(shard: Shard) -> Iterator[None]:
    """Inside, an error of the system or of pyarrow becomes a DataError."""
    url = url_of(Path(shard.path))
    hint = f"Remove it: it is fetched again from {url}. If that is no better: {HINT}" if url else HINT
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{shard.path} is missing. {HINT}") from None
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno:  # the system's, not the content's
            raise DataError(f"{shard.path} cannot be read. {explain(error)}") from error
        _open.cache_clear()  # a repaired one is another file
        raise DataError(f"{shard.path} is damaged: {error}. {hint}") from error


def _open_at_once() -> int:
    """OPEN_SHARDS, or half of the files that this process may have open: 1,024 in the shells of most machines."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return OPEN_SHARDS if limit == resource.RLIM_INFINITY else min(OPEN_SHARDS, limit // 2)


@lru_cache(maxsize=_open_at_once())
def _open(shard: Shard) -> pq.ParquetFile:
    fetch_shards([shard])
    file = pa.OSFile(shard.path)
    if (footer := _hash_footer(file)) != shard.footer:
        raise ValueError(f"the hash of its footer is {footer}, not {shard.footer}")
    opened = pq.ParquetFile(file, page_checksum_verification=True)
    if any(field.type != _LISTS for field in opened.schema_arrow):  # pickled objects would run code
        raise DataError(f"{shard.path} is no shard: a column of it holds something else than lists of numbers.")
    return opened


def hash_footer(path: Path) -> str:
    """The begin of the SHA-256 of a Parquet file's footer, in hexadecimal; empty if it has none."""
    with path.open("rb") as file:
        return _hash_footer(file)


def _hash_footer(file: BinaryIO | pa.NativeFile) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL))
    footer = int.from_bytes(file.read(4), "little") + _TAIL
    if footer > size:
        return ""
    file.seek(size - footer)
    return hashlib.sha256(file.read()).hexdigest()[:16]


def _as_table(rows: Rows, columns: Sequence[str]) -> pa.Table:
    row_words = sum_runs(rows.segment_words, rows.row_segments)
    lengths = {
        "pieces": sum_runs(rows.word_length, row_words),
        **dict.fromkeys(("word_length", "entry"), row_words),
        **dict.fromkeys(("side_words", "side_language", "side_links", "side_vector"), rows.row_segments),
        "vector": sum_runs(rows.segment_vector, rows.row_segments),
        **dict.fromkeys(("link_from", "link_to"), sum_runs(rows.segment_links, rows.row_segments)),
    }
    schema = pa.schema([pa.field(name, _LISTS, nullable=False) for name in columns])
    lists = {name: _lists(getattr(rows, name.replace(ON_DISK, IN_ROWS)), lengths[name]) for name in columns}
    return pa.table(lists, schema)


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
    if "segment_links" not in flat:
        none = np.zeros(0, np.int32)
        flat |= {"segment_links": np.zeros_like(flat["segment_words"]), "link_from": none, "link_to": none}
    return Rows(**flat)


_COLUMNS = [f.name.replace(IN_ROWS, ON_DISK) for f in fields(Rows) if f.name != "row_segments"]


SHARD_TABLE = "shards.arrow"
_SCHEMA = pa.schema(
    {"file": pa.string(), "sha256": pa.string(), "footer": pa.string(), "rows": pa.int64()}
)  # name below the folder; hashes of the whole file, and of its footer


def write_shard_table(folder: Path, shards: Iterable[Mapping[str, Any]]) -> None:
    """Writes the table; a pool knows its shards by their numbers in it."""
    memory = pa.BufferOutputStream()
    with pa.ipc.new_file(memory, _SCHEMA) as file:
        file.write_table(pa.Table.from_pylist(list(shards), schema=_SCHEMA))
    write_atomic(folder / SHARD_TABLE, memory.getvalue().to_pybytes())


def shard_hashes(folder: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of each shard by name; none where the table itself is damaged."""
    path = folder / SHARD_TABLE
    if not path.is_file() or hash_file(path) != manifest["files"].get(SHARD_TABLE):
        return {}
    table = open_shard_table(folder)
    return dict(zip(table["file"].to_pylist(), table["sha256"].to_pylist(), strict=True))


def open_shard_table(folder: Path) -> pa.Table:
    """The table, memory-mapped: only columns in use are read."""
    return pa.ipc.open_file(pa.memory_map(str(folder / SHARD_TABLE))).read_all()


class Shards:
    """The shards of one pool, of rows [begin, end) of the table."""

    def __init__(self, folder: Path, table: pa.Table, span: tuple[int, int]) -> None:
        begin, end = span
        self._folder, self._table = folder, table.slice(begin, end - begin)

    def __len__(self) -> int:
        return len(self._table)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Of each shard."""
        return self._table["rows"].to_numpy()

    def __getitem__(self, number: int) -> Shard:
        file, footer = (self._table[name][number].as_py() for name in ("file", "footer"))
        return Shard(str(self._folder / file), footer)


def fetch_shards(wanted: Iterable[Shard]) -> None:
    """Brings shards of a store to their places in its mirror, many at once, unless they are there.

    Raises:
        DataError: a store refuses, or a shard there is damaged.
    """
    if new := [shard for shard in dict.fromkeys(wanted) if not os.path.exists(shard.path) and url_of(Path(shard.path))]:
        with ThreadPoolExecutor(FETCHED_AT_ONCE, thread_name_prefix="fetch shards") as threads:
            list(threads.map(_fetch, new))  # raises what one of them does


def _fetch(shard: Shard) -> None:
    """Copies a shard out of its store; of threads and processes that want it at once, one does."""
    path, url = Path(shard.path), url_of(Path(shard.path)) or ""
    with _said_of(shard):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(f".{zlib.crc32(path.name.encode()) % FETCHED_AT_ONCE}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return
            with said_of(url):
                system, there = find_system(url)
                content = system.cat_file(there)
            with replacing(path) as partial:
                partial.write_bytes(content)
                if (footer := hash_footer(partial)) != shard.footer:
                    raise DataError(f"{url} is damaged: the hash of its footer is {footer}, not {shard.footer}. {HINT}")
