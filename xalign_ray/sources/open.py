"""Finds and opens raw files, packed or not, as chunks of bytes or numbered lines; faults are reported, not raised."""

from __future__ import annotations

import codecs
import glob
import io
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from xalign_ray.errors import DataError
from xalign_ray.work.file_checks import (
    HEAD_BYTES,
    check_archive,
    check_first_bytes,
    check_sentences,
    check_text,
    open_file,
)
from xalign_ray.work.storage import find_system, info_of, is_stored, is_url, is_web, open_stored, said_of

# Finds and opens files wherever they lie: on local disks, and behind URLs that fsspec knows (s3, gs, hf, https).

# As stores call it.
_VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "LastModified", "last_modified", "mtime", "updated", "blob_id")


def join_path(root: str, path: str) -> str:
    """A path of a recipe, seen from its root: URLs and absolute paths stand for themselves; the root may be a URL."""
    if is_url(path):
        return path
    return f"{root.rstrip('/')}/{path}" if is_url(root) and not Path(path).is_absolute() else str(Path(root) / path)


def open_bytes(path: str) -> BinaryIO:
    """A file to read and seek in.

    Raises:
      DataError: it cannot be opened: a link that leads nowhere or to itself, a file that others may not read, a pipe,
        a URL whose store refuses; or it is a pointer or an error message in the file's place.
    """
    if not is_url(path):
        return open_file(path)
    with ExitStack() as stack:
        file = stack.enter_context(open_stored(path))
        check_first_bytes(path, file.read(HEAD_BYTES))
        file.seek(0)
        stack.pop_all()
    return file


def facts_of(path: str) -> list[Any] | None:
    """What changes when a file does: size, mtime and ctime in ns, inode; in a store size and version; None if unknown.

    No program can set a ctime back, so a file that was changed in place under its old mtime is noticed.
    """
    if not is_stored(path):
        stat = Path(find_system(path)[1] if is_url(path) else path).stat()
        return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
    info = info_of(path, anew=True)
    version = next((info[key] for key in _VERSIONS if info.get(key)), None)
    return [info.get("size"), str(version)] if version else None


def size_of(path: str) -> int:
    """Bytes of a file."""
    if not is_url(path):
        return Path(path).stat().st_size
    if size := info_of(path)["size"]:
        return size
    with open_bytes(path) as file:
        return file.seek(0, 2)


def is_folder(path: str) -> bool:
    """Whether a path is a folder; a web server has none, and fsspec would read a whole file to find out."""
    if not is_url(path):
        return Path(path).is_dir()
    system, inner = find_system(path)
    with said_of(path, "cannot be looked up"):
        return not is_web(path) and system.isdir(inner)


def expand(path: str) -> list[str]:
    """What a path or pattern names, patterns in sorted order; a file whose name looks like a pattern is that file,
    and so is a folder.

    Raises:
      DataError: it names nothing, or the store that it lies in cannot be asked.
    """
    if is_url(path):
        return _expand_url(path)
    matches = [path] if Path(path).exists() else sorted(_matches(path))
    if not matches:
        raise DataError(f"{path} does not exist. Check the path; relative paths start from {Path.cwd()}.")
    return matches


def _matches(pattern: str) -> list[str]:
    """The paths that match; the folders above that exist are meant as written, whatever characters they have."""
    above = next((folder for folder in Path(pattern).parents if folder.is_dir()), Path())
    rest = str(Path(pattern).relative_to(above))
    return glob.glob(str(Path(glob.escape(str(above))) / rest), recursive=True)


def _expand_url(path: str) -> list[str]:
    system, inner = find_system(path)
    if is_web(path) and "*" not in path:  # whether it is there shows when it is opened
        return [path]
    with said_of(path, "cannot be looked up"):
        matches = [inner] if system.exists(inner) else sorted(cast("list[str]", system.glob(inner)))
    if not matches:
        raise DataError(f"{path} does not exist. Check the URL and your access to it.")
    return [path] if matches == [inner] else [system.unstrip_protocol(match) for match in matches]


TRUNCATED = "truncated archive"
DAMAGED = "damaged archive"
CHECKSUM = "its checksum is wrong, so that bytes before are damaged"
XML_ENDS = "XML ends too early"
XML_LONG = "an element is longer than 64 MB"
XML_BROKEN = "XML is not well-formed"


REFETCH = "Fetch or repair the file."


class BrokenFileError(DataError):
    """Raised by a reader where a file cannot be read on."""


def broken_file(path: str, reason: str, offset: int, size: int) -> BrokenFileError:
    """The error for a file that cannot be read from a byte on.

    Offset and size count the bytes of the file as it lies there, packed or not; of a member of a zip its unpacked ones.
    """
    return BrokenFileError(f"cannot be read from byte {offset:,} of {size:,} on: {reason}. {REFETCH}", path)


CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 16 << 20  # of a line or a document in any format: longer than any book
BYTES_A_CHARACTER = 4  # at most, in UTF-8
STEP_BYTES = 1 << 14  # read and unpacked at a time of a packed file, so that little before a fault is lost

NOT_UTF8 = "bytes are not UTF-8"
OVER_LONG = f"line or document is longer than {MAX_LINE_BYTES >> 20} MB"
NUL = "line holds NUL characters"
CR = "line holds a carriage return (CR)"

# Messages of pyarrow's unpackers, whose errors are of one class.
_SAID = {"Truncated": TRUNCATED, "incorrect data check": CHECKSUM, "incorrect length check": CHECKSUM}
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
_SUFFIXES = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


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


class _Range(io.RawIOBase):
    """The bytes [start, end) of a file, at most `most` at a time, as a file, for an unpacker."""

    def __init__(self, file: BinaryIO, span: Span, most: int) -> None:
        self._file, self._end, self._most, self.at = file, span.end, most, span.start
        file.seek(span.start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._most)
        data = self._file.read(wanted if self._end is None else min(wanted, self._end - self.at))
        buffer[: len(data)] = data
        self.at += len(data)
        return len(data)


def packing(path: str) -> str | None:
    """As _packing, of a file that is opened for it."""
    with open_bytes(path) as file:
        return _packing(path, file.read(HEAD_BYTES))


def _packing(path: str, head: bytes) -> str | None:
    """How a file is packed, by its first bytes, or by its name where those are no text; None if it is not.

    A server that unpacks its answers leaves text under a name such as `a.txt.gz`.

    Raises:
      DataError: it is packed in a way that is not read here.
    """
    check_archive(path, head)
    by_name = None if head and _is_utf8(head) else _SUFFIXES.get(Path(path).suffix)
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), by_name)


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


def is_one_piece(path: str) -> bool:
    """Whether lines of the file cannot be found by their bytes: it is packed, or UTF-16."""
    with open_bytes(path) as file:
        head = file.read(HEAD_BYTES)
    return _packing(path, head) is not None or head[:2] in _UTF16


class Chunks:
    """The bytes of a file, unpacked, in pieces of at most 1 MB, and where in the file the last piece is from.

    A span counts bytes of the file as it lies there; of a packed one it must hold whole streams.

    Iterating raises:
      BrokenFileError: it cannot be unpacked on.
      DataError: at once for a file that is no data by check_first_bytes.
    """

    def __init__(self, path: str, span: Span = WHOLE, head: bytes = b"", tail: bytes = b"") -> None:
        self.path, self.span, self._head, self._tail = path, span, head, tail
        self._end, self._size = span.start, 0  # of the last piece, and of the file

    def whole(self) -> Chunks:
        """The same file from its beginning to its end."""
        return self if self.span == WHOLE else Chunks(self.path)

    def __iter__(self) -> Iterator[bytes]:
        with open_bytes(self.path) as file:
            kind = _packing(self.path, file.read(HEAD_BYTES))
            self._size = file.seek(0, 2)
            if self._head:
                yield self._head
            yield from self._of_file(file, kind)
        if self._tail:
            yield self._tail

    def _of_file(self, file: BinaryIO, kind: str | None) -> Iterator[bytes]:
        import pyarrow

        step_bytes = STEP_BYTES if kind else CHUNK_BYTES
        raw: Any = _Range(file, self.span, step_bytes)
        opened: Any = pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), kind) if kind else raw
        with opened as unpacker:
            while True:
                try:
                    chunk = unpacker.read(step_bytes)
                except OSError as error:
                    if error.errno is not None:  # the disk, not the archive
                        raise DataError(f"{self.path} cannot be read at byte {raw.at:,}: {error.strerror}.") from error
                    reason = next((reason for word, reason in _SAID.items() if word in str(error)), DAMAGED)
                    at = self._end if reason == DAMAGED else raw.at
                    raise broken_file(self.path, reason, at, self._size) from error
                if not chunk:
                    return
                if kind and self._end == 0:
                    check_first_bytes(self.path, chunk[:HEAD_BYTES])
                self._end = raw.at
                yield chunk

    def broken(self, reason: str) -> BrokenFileError:
        """The error for a file that cannot be read on behind its last piece."""
        return broken_file(self.path, reason, self._end, self._size)


def read_lines(
    path: str, span: Span = WHOLE, first_line: int = 1, *, json_lines: bool = False, sentences: bool = False
) -> Iterator[Line]:
    r"""The lines of a UTF-8 file, numbered from `first_line`; LF and CRLF end a line, nothing else does.

    A CR inside a line is a fault: the programs that wrote the file may have ended a line there. UTF-16 is known by its
    byte-order mark and read the same. A mark is dropped. A line that cannot be used is yielded with its fault. Holds at
    most 100 MB.

    Args:
      json_lines: the lines may be JSON.
      sentences: the lines should be sentences.

    Raises:
      BrokenFileError: the rest cannot be read.
      DataError: it holds no lines of text by check_text, or no sentences, or its lines end in CR alone.
    """
    return number_lines(Chunks(path, span), first_line, json_lines=json_lines, sentences=sentences)


def number_lines(
    chunks: Chunks, first_line: int = 1, *, json_lines: bool = False, sentences: bool = False
) -> Iterator[Line]:
    """As read_lines, of the chunks of a file or of a member of an archive."""
    number, begun, size = first_line, list[bytes](), 0  # the line that no chunk has ended yet
    is_begin = first_line == 1
    for chunk in _as_text(chunks, json_lines=json_lines, sentences=sentences) if is_begin else chunks:
        complete, end, rest = chunk.rpartition(b"\n")
        if end:
            for line in _decode_all(number, b"".join([*begun, complete])):
                yield line
                number += 1
            begun, size = [], 0
        if size <= MAX_LINE_BYTES:  # enough to know that it is over-long
            begun.append(rest)
            size += len(rest)
    if size:
        yield _decode(number, b"".join(begun))


def check_lines(path: str, *, json_lines: bool = False, sentences: bool = False) -> None:
    """Looks at the beginning of a file of lines; raises what read_lines would at its first line."""
    next(_as_text(Chunks(path), json_lines=json_lines, sentences=sentences))


def _as_text(chunks: Chunks, *, json_lines: bool, sentences: bool) -> Iterator[bytes]:
    """The same text in UTF-8 if it begins with a mark of UTF-16; what is not UTF-16 becomes what is not UTF-8.

    Raises:
      DataError: it is no text by check_text, or no sentences by check_sentences, or its first line ends in CR alone.
    """
    text, begun, size, has_end = _as_utf8(iter(chunks)), list[bytes](), 0, False
    while size < HEAD_BYTES or not (has_end or size > MAX_LINE_BYTES):
        if not (chunk := next(text, b"")):
            break
        begun.append(chunk)
        size, has_end = size + len(chunk), has_end or b"\n" in chunk
    head = b"".join(begun)
    check_text(chunks.path, head[:HEAD_BYTES], json_lines=json_lines)
    if sentences:
        check_sentences(chunks.path, head[:HEAD_BYTES])
    if b"\n" not in head and b"\r" in head.rstrip(b"\r"):
        raise DataError(
            f"{chunks.path} has lines that end in a carriage return (CR) alone. Convert them: tr '\\r' '\\n' < OLD "
            "> NEW"
        )
    yield head
    yield from text


def _as_utf8(chunks: Iterator[bytes]) -> Iterator[bytes]:
    head = b""
    while len(head) < 2 and (chunk := next(chunks, b"")):
        head += chunk
    encoding = _UTF16.get(head[:2])
    if encoding is None:
        yield head
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
    yield decoder.decode(head[2:]).encode("utf-8", "surrogatepass")
    for chunk in chunks:
        yield decoder.decode(chunk).encode("utf-8", "surrogatepass")
    if decoder.getstate()[0]:
        yield b"\xff"  # half a character at the end


def _decode_all(number: int, raw: bytes) -> Iterator[Line]:
    """The lines of many, decoded at once where none can have a fault: a third of the price of one by one."""
    has_faults = b"\0" in raw or raw.count(b"\r") > raw.count(b"\r\n") + raw.endswith(b"\r")
    try:
        lines = [] if has_faults else raw.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        lines = []
    if not lines or len(max(lines, key=len)) * BYTES_A_CHARACTER > MAX_LINE_BYTES:
        return (_decode(at, line) for at, line in enumerate(raw.split(b"\n"), number))
    if number == 1:
        lines[0] = lines[0].removeprefix("\ufeff")
    return (Line(at, line.removesuffix("\r"), "") for at, line in enumerate(lines, number))


def _decode(number: int, raw: bytes) -> Line:
    raw = raw.rstrip(b"\r")
    if b"\r" in raw:
        return Line(number, "", CR)
    if len(raw) > MAX_LINE_BYTES:
        return Line(number, "", OVER_LONG)
    if b"\0" in raw:
        return Line(number, "", NUL)
    if number == 1:
        raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return Line(number, raw.decode("utf-8"), "")
    except UnicodeDecodeError:
        return Line(number, "", NOT_UTF8)
