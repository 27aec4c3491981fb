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
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq

from xalign_ray.artifacts import MACHINE, unfinished
from xalign_ray.data.file_hashes import HINT
from xalign_ray.errors import DataError
from xalign_ray.mirror import cache_folder
from xalign_ray.storage import find_system, said_of

CACHE_GIB = "XALIGN_CACHE_GIB"  # how much of the shards in stores a machine keeps
CACHED_GIB = 32.0  # unless that says otherwise
_SHARDS = ".shards"  # of the cache folder: nodes may share that, but each machine has shards of its own
_TAIL_BYTES = 128 << 10  # fetched first: most footers are smaller
_FOOTER_END = 8  # bytes: a footer's length, and the mark of the format
UNIT = 16  # row groups that are fetched together: those of a shard are read soon after each other, and requests cost
_LEFT = 0.8  # of the bound, when files were removed
_TRIM_SHARE = 16  # a process looks at the cache when it has written this part of the bound

_written = 0
_lock = threading.Lock()


class StoredShard(io.RawIOBase):
    """The file of a shard in the cache, which is what of it was fetched; to be read by pyarrow.

    Raises, when it is made and from `fetch`:
        DataError: the store refuses, or the shard there is not the one that prepare wrote.
    """

    def __init__(self, url: str, footer: str) -> None:
        """
        Args:
            footer: hash of the shard's footer.
        """
        self._url = url
        self._system, self._there = find_system(url)
        self._path = shard_cache() / f"{footer}-{hashlib.sha256(url.encode()).hexdigest()[:16]}.parquet"
        try:
            self._file = os.open(self._path, os.O_RDWR)
        except FileNotFoundError:
            self._create(footer)
            self._file = os.open(self._path, os.O_RDWR)
        self._at = 0
        self._size = os.fstat(self._file).st_size
        self._size -= int.from_bytes(os.pread(self._file, 4, self._size - 4), "little")
        self.metadata = pq.read_metadata(self)

    def _create(self, footer: str) -> None:
        with said_of(self._url):
            size = int(self._system.info(self._there)["size"])
            tail = self._read(max(0, size - _TAIL_BYTES), size)
            length = int.from_bytes(tail[-_FOOTER_END:][:4], "little") + _FOOTER_END
            if len(tail) < length <= size:
                tail = self._read(size - length, size)
        if hashlib.sha256(tail[-length:]).hexdigest()[:16] != footer:
            raise DataError(f"{self._url} is damaged: its footer is not the one that was written. {HINT}")
        marks = pq.read_metadata(io.BytesIO(tail[-length:].rjust(length + 4, b"P"))).num_row_groups + 4
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = unfinished(self._path)
        with partial.open("wb") as file:
            file.write(tail[-4:])  # a file begins with the mark that it ends with
            file.truncate(size + marks)
            file.seek(size - length)
            file.write(tail[-length:])
            file.seek(size + marks - 4)
            file.write(marks.to_bytes(4, "little"))
        with suppress(FileExistsError):  # not in place of another's, who writes into it
            os.link(partial, self._path)
        partial.unlink()

    def fetch(self, groups: Sequence[int]) -> None:
        """Brings row groups here, all at once, unless they are here; with each those of its unit."""
        os.utime(self._file)  # by which the least recently used are known
        marks = os.pread(self._file, self.metadata.num_row_groups, self._size)
        units = sorted({group // UNIT for group in groups if not marks[group]})
        if not units:
            return
        ends = [min((unit + 1) * UNIT, len(marks)) for unit in units]
        spans = [(self._span(unit * UNIT)[0], self._span(end - 1)[1]) for unit, end in zip(units, ends, strict=True)]
        with said_of(self._url):
            came = self._system.cat_ranges([self._there] * len(spans), *map(list, zip(*spans, strict=True)))
            for unit, end, (first, last), data in zip(units, ends, spans, came, strict=True):
                if len(data) < last - first:
                    raise EOFError(f"the store ended it after {first + len(data):,} of {self._size:,} bytes")
                os.pwrite(self._file, data, first)
                os.pwrite(self._file, b"\1" * (end - unit * UNIT), self._size + unit * UNIT)
        _count(sum(last - first for first, last in spans))

    def forget(self) -> None:
        """Removes it from the cache, so that it is fetched anew."""
        self._path.unlink(missing_ok=True)

    def _span(self, group: int) -> tuple[int, int]:
        row_group = self.metadata.row_group(group)
        columns = [row_group.column(number) for number in range(row_group.num_columns)]
        return (
            min(column.data_page_offset for column in columns),
            max(column.data_page_offset + column.total_compressed_size for column in columns),
        )

    def _read(self, begin: int, end: int) -> bytes:
        return self._system.cat_file(self._there, start=begin, end=end)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = os.pread(self._file, min(len(buffer), self._size - self._at), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            os.close(self._file)
        super().close()


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
