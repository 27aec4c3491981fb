"""Shards that lie in a store, read by row group through a cache on this disk that is bounded in bytes.

A shard's file in the cache is as long as the shard and has holes: its footer, the row groups that were fetched, and
behind them a mark for each of these. Processes of a machine share the cache. They may fetch the same group at once and
write the same bytes; a mark is set when its bytes are there. A file that is removed is read on by those who hold it.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from xalign_ray.data.stage import HINT
from xalign_ray.errors import DataError
from xalign_ray.work.artifacts import MACHINE, unfinished
from xalign_ray.work.mirror import CACHE, cache_folder
from xalign_ray.work.storage import find_system, said_of

CACHE_GIB = "XALIGN_CACHE_GIB"  # how much of the shards in stores a machine keeps
CACHED_GIB = 32.0  # unless that says otherwise
_SHARDS = ".shards"  # of the cache folder: nodes may share that, but each machine has shards of its own
_TAIL_BYTES = 128 << 10  # fetched first: most footers are smaller
_FOOTER_END = 8  # bytes: a footer's length, and the mark of the format
UNIT = 16  # row groups that are fetched together: those of a shard are read soon after each other, and requests cost
_LENGTH = 4  # bytes at the end of a file in the cache that say how many the marks and they are
_LEFT = 0.8  # of the bound, when files were removed
_TRIM_SHARE = 16  # a process looks at the cache when it has written this part of the bound

_written = 0
_lock = threading.Lock()


class StoredShard:
    """A shard in a store; what of it was fetched is in the cache. Holds no file open between its calls.

    Raises, when it is made and from its methods:
        DataError: the store refuses, or the shard there is not the one that prepare wrote.
        OSError, ArrowException: what is in the cache is damaged.
    """

    def __init__(self, url: str, footer: str) -> None:
        """
        Args:
            footer: hash of the shard's footer.
        """
        self._url, self._footer = url, footer
        self._system, self._there = find_system(url)
        self._path = _path_of(url, footer)
        for _ in range(2):
            with self._opened() as file:
                self._size = os.fstat(file).st_size
                self._size -= int.from_bytes(os.pread(file, _LENGTH, max(0, self._size - _LENGTH)), "little")
                if _hash_footer(_Bytes(file, self._size), self._size) == footer:
                    self._metadata = pq.read_metadata(_Bytes(file, self._size))
                    return
            forget(url, footer)  # the copy here was damaged
        raise DataError(f"{self._path} is not as it was written a moment ago. Check the disk, or name another {CACHE}.")

    def fetch(self, groups: Sequence[int]) -> None:
        """Brings row groups here, all at once, unless they are here; with each those of its unit."""
        with self._opened() as file:
            self._fetch(file, groups)

    def read_row_group(self, group: int) -> pa.Table:
        """One row group, fetched unless it is here; pages are checked against their checksums."""
        with self._opened() as file:
            self._fetch(file, [group])
            source = pa.OSFile(f"/dev/fd/{file}")  # not the path, which another process may have removed by now
            opened = pq.ParquetFile(source, metadata=self._metadata, page_checksum_verification=True)
            return opened.read_row_group(group, use_threads=False)

    @property
    def schema_arrow(self) -> pa.Schema:
        """Of its columns."""
        return self._metadata.schema.to_arrow_schema()

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """The file in the cache, made if it is not there; whoever removes it meanwhile, it stays until it is closed."""
        try:
            file = os.open(self._path, os.O_RDWR)
        except FileNotFoundError:
            self._create()
            file = os.open(self._path, os.O_RDWR)
        try:
            yield file
        finally:
            os.close(file)

    def _create(self) -> None:
        with said_of(self._url):
            size = int(self._system.info(self._there)["size"])
            tail = self._read(max(0, size - _TAIL_BYTES), size)
            length = int.from_bytes(tail[-_FOOTER_END:][:4], "little") + _FOOTER_END
            if len(tail) < length <= size:
                tail = self._read(size - length, size)
        if hashlib.sha256(tail[-length:]).hexdigest()[:16] != self._footer:
            raise DataError(f"{self._url} is damaged: its footer is not the one that was written. {HINT}")
        marks = pq.read_metadata(io.BytesIO(tail[-length:].rjust(length + 4, b"P"))).num_row_groups + _LENGTH
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = unfinished(self._path)
        with partial.open("wb") as file:
            file.write(tail[-4:])  # a file begins with the mark that it ends with
            file.truncate(size + marks)
            file.seek(size - length)
            file.write(tail[-length:])
            file.seek(size + marks - _LENGTH)
            file.write(marks.to_bytes(_LENGTH, "little"))
        with suppress(FileExistsError):  # not in place of another's, who writes into it
            os.link(partial, self._path)
        partial.unlink()

    def _fetch(self, file: int, groups: Sequence[int]) -> None:
        os.utime(file)  # by which the least recently used are known
        marks = os.pread(file, self._metadata.num_row_groups, self._size)
        units = sorted({group // UNIT for group in groups if not marks[group]})
        if not units:
            return
        ends = [min((unit + 1) * UNIT, len(marks)) for unit in units]
        spans = [(self._span(unit * UNIT)[0], self._span(end - 1)[1]) for unit, end in zip(units, ends, strict=True)]
        with said_of(self._url):
            begins, stops = map(list, zip(*spans, strict=True))
            came = self._system.cat_ranges([self._there] * len(spans), begins, stops, on_error="raise")
        for unit, end, (first, last), data in zip(units, ends, spans, came, strict=True):
            if len(data) < last - first:
                raise DataError(
                    f"{self._url} is damaged: it ends after {first + len(data):,} of {self._size:,} bytes. {HINT}"
                )
            _write(file, data, first)
            _write(file, b"\1" * (end - unit * UNIT), self._size + unit * UNIT)
        _count(sum(last - first for first, last in spans))

    def _span(self, group: int) -> tuple[int, int]:
        row_group = self._metadata.row_group(group)
        columns = [row_group.column(number) for number in range(row_group.num_columns)]
        return (
            min(column.data_page_offset for column in columns),
            max(column.data_page_offset + column.total_compressed_size for column in columns),
        )

    def _read(self, begin: int, end: int) -> bytes:
        return self._system.cat_file(self._there, start=begin, end=end)


class _Bytes(io.RawIOBase):
    """The begin of an open file, as pyarrow reads one."""

    def __init__(self, file: int, size: int) -> None:
        self._file, self._size, self._at = file, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = os.pread(self._file, max(0, min(len(buffer), self._size - self._at)), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _hash_footer(file: io.RawIOBase, size: int) -> str:
    """As `shards.hash_footer`."""
    file.seek(max(0, size - _FOOTER_END))
    length = int.from_bytes((file.read(4) or b"")[:4], "little") + _FOOTER_END
    file.seek(max(0, size - length))
    return hashlib.sha256(file.read(length) or b"").hexdigest()[:16]


def _write(file: int, data: bytes, at: int) -> None:
    """All of it: a full disk may take a part."""
    left = memoryview(data)
    while left:
        taken = os.pwrite(file, left, at)
        left, at = left[taken:], at + taken


def forget(url: str, footer: str) -> None:
    """Removes a shard from the cache, so that it is fetched anew."""
    _path_of(url, footer).unlink(missing_ok=True)


def _path_of(url: str, footer: str) -> Path:
    return shard_cache() / f"{footer}-{hashlib.sha256(url.encode()).hexdigest()[:16]}.parquet"


def shard_cache() -> Path:
    """Where this machine keeps what it has fetched of shards."""
    return cache_folder() / _SHARDS / MACHINE


def _count(size: int) -> None:
    global _written
    bound = float(os.environ.get(CACHE_GIB) or CACHED_GIB) * (1 << 30)
    with _lock:
        _written += size
        if _written < bound / _TRIM_SHARE:
            return
        _written = 0
        files = sorted(_files())
        over = sum(size for _, size, _ in files) - bound
        for _, size, path in files if over > 0 else ():
            if over <= -(1 - _LEFT) * bound:
                break
            path.unlink(missing_ok=True)
            over -= size


def _files() -> Iterator[tuple[float, int, Path]]:
    for path in shard_cache().glob("*.parquet"):
        with suppress(FileNotFoundError):  # another process has removed it
            stat = path.stat()
            yield stat.st_mtime, stat.st_blocks * 512, path
