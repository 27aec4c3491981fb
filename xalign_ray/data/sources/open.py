"""Opens raw files, packed or not, as chunks of bytes or as numbered lines whose faults are told instead of raised."""

from __future__ import annotations

import bz2
import codecs
import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from xalign_ray.errors import DataError

CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 20

NOT_UTF8 = "bytes are not UTF-8"
OVER_LONG = "line is longer than 1 MB"
NUL = "line holds NUL characters"
TRUNCATED = "truncated archive"
DAMAGED = "damaged archive"
ARCHIVE_FAULTS = frozenset({TRUNCATED, DAMAGED})

_PACKERS: dict[str, Callable[[str], gzip.GzipFile | bz2.BZ2File]] = {"gzip": gzip.GzipFile, "bzip2": bz2.BZ2File}
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ": "xz",
    b"7z\xbc\xaf": "7z",
    b"PK\x03\x04": "zip",
}
_SUFFIXES = {".gz": "gzip", ".bz2": "bzip2"}


@dataclass(frozen=True, slots=True)
class Span:
    """A range of bytes of a file; `end` None is the end of the file."""

    start: int = 0
    end: int | None = None


WHOLE = Span()


class Line(NamedTuple):
    """One line without its line end. `fault` is empty, or the reason why `text` could not be had."""

    number: int
    text: str
    fault: str


class ArchiveFaultError(Exception):
    """The rest of a packed file cannot be read; the reason is one of ARCHIVE_FAULTS."""


def packing(path: str) -> str | None:
    """How a file is packed, by its first bytes, or by its name where those are none that we know; None if it is not.

    Raises:
      DataError: it is packed in a way that is not read here.
    """
    with open(path, "rb") as file:
        head = file.read(8)
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), _SUFFIXES.get(Path(path).suffix))
    if kind and kind not in _PACKERS:
        raise DataError(f"{path} is a {kind} archive, which is not read here. Unpack it, or pack it as .gz or .bz2.")
    return kind


def read_chunks(path: str, span: Span = WHOLE) -> Iterator[bytes]:
    """The bytes of a file, unpacked, in pieces of at most 1 MB; a span counts bytes of a file that is not packed.

    Raises:
      ArchiveFaultError: after everything that could be unpacked has been yielded.
    """
    kind = packing(path)
    if kind is None:
        yield from _read_range(path, span)
        return
    assert span == WHOLE, "a packed file is one part"
    with _PACKERS[kind](path) as file:
        # read1 returns what one step of the unpacker gave, so that nothing readable is lost when the next step fails.
        while chunk := _unpack_step(file):
            yield chunk


def _unpack_step(file: gzip.GzipFile | bz2.BZ2File) -> bytes:
    try:
        return file.read1(CHUNK_BYTES)
    except EOFError as error:
        raise ArchiveFaultError(TRUNCATED) from error
    except zlib.error as error:
        raise ArchiveFaultError(DAMAGED) from error
    except OSError as error:
        if error.errno is not None:  # the disk, not the archive
            raise
        raise ArchiveFaultError(DAMAGED) from error


def _read_range(path: str, span: Span) -> Iterator[bytes]:
    with open(path, "rb") as file:
        file.seek(span.start)
        left = span.end - span.start if span.end is not None else None
        while left is None or left > 0:
            chunk = file.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left))
            if not chunk:
                return
            left = None if left is None else left - len(chunk)
            yield chunk


def read_lines(path: str, span: Span = WHOLE, first_line: int = 1) -> Iterator[Line]:
    r"""The lines of a UTF-8 file, numbered from `first_line`; LF and CRLF end a line, nothing else does.

    A byte-order mark is dropped. A line that cannot be used is yielded with its fault. An archive that breaks off ends
    with one line whose fault is in ARCHIVE_FAULTS; the line that was cut in two is not yielded. Holds at most 3 MB.
    """
    number, rest = first_line, b""
    try:
        for chunk in read_chunks(path, span):
            *whole, rest = (rest + chunk).split(b"\n")
            rest = rest[: MAX_LINE_BYTES + 1]  # enough to know that it is over-long
            for raw in whole:
                yield _decode(number, raw)
                number += 1
    except ArchiveFaultError as fault:
        yield Line(number, "", str(fault))
        return
    if rest:
        yield _decode(number, rest)


def _decode(number: int, raw: bytes) -> Line:
    if len(raw) > MAX_LINE_BYTES:
        return Line(number, "", OVER_LONG)
    if b"\0" in raw:
        return Line(number, "", NUL)
    if number == 1:
        raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return Line(number, raw.removesuffix(b"\r").decode("utf-8"), "")
    except UnicodeDecodeError:
        return Line(number, "", NOT_UTF8)
