"""Members of zip and tar archives, as OPUS publishes them next to their licence and notes."""

from __future__ import annotations

import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, BinaryIO, NamedTuple, cast

from xalign_ray.errors import DataError
from xalign_ray.sources.open import (
    CHECKSUM,
    CHUNK_BYTES,
    DAMAGED,
    TRUNCATED,
    Chunks,
    broken_file,
    open_bytes,
)

_ZIP = b"PK\x03\x04"
_FAULTS = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.ReadError)  # OSError: a wrong CRC
_NOT_TERMS = re.compile(r"(^|/)(readme|licen[sc]e|copying)\b|\.(md|pdf|html?|dtd|rng|xsd|sch|css|xsl)$", re.IGNORECASE)


class Member(NamedTuple):
    """A file within an archive, and its size unpacked."""

    file: IO[bytes]
    size: int


def is_zip(path: str) -> bool:
    """Whether a file is a zip archive, by its first bytes."""
    with open_bytes(path) as file:
        return file.read(len(_ZIP)) == _ZIP


def member_names(path: str) -> list[str]:
    """The files in an archive, but for those that Apple's programs add: `._x.en` and `__MACOSX/`.

    Raises:
      DataError: it is no zip or tar archive, or is not whole.
    """
    with open_bytes(path) as file:
        packed_by_zip = is_zip(path)
        try:
            if packed_by_zip:
                with zipfile.ZipFile(file) as archive:
                    names = [info.filename for info in archive.infolist() if not info.is_dir()]
            else:
                with _tar(file) as archive:
                    names = [member.name for member in archive if member.isfile()]
        except _FAULTS as error:
            kind = "zip" if packed_by_zip else "tar"
            raise DataError(f"{path} is no {kind} file, or is cut short ({error}). Fetch it again.") from None
    return [name for name in names if not any(part == "__MACOSX" or part.startswith("._") for part in name.split("/"))]


def _tar(file: BinaryIO) -> tarfile.TarFile:
    return tarfile.open(fileobj=file, mode="r:*")


def open_member(path: str, name: str, stack: ExitStack) -> Member:
    """A member by a handle to the archive: two members of a packed tar, read in turn, would rewind a common one."""
    file = stack.enter_context(open_bytes(path))
    if not is_zip(path):
        archive = stack.enter_context(_tar(file))
        info = archive.getmember(name)
        return Member(cast("IO[bytes]", archive.extractfile(info)), info.size)
    archive = stack.enter_context(zipfile.ZipFile(file))
    try:
        return Member(archive.open(name), archive.getinfo(name).file_size)
    except RuntimeError as error:  # for a password or a packing that zipfile does not know
        raise DataError(f"{path} cannot be unpacked here: {error}. Unpack it, and read it with format moses.") from None
    except zipfile.BadZipFile as error:
        raise DataError(f"{path} is no zip file, or is cut short ({error}). Fetch it again.") from None


def unpack(member: Member, name: str) -> Iterator[bytes]:
    """The bytes of a member in pieces; `name` is archive:member, for messages.

    Raises:
      BrokenFileError: it cannot be read on.
    """
    file, size = member
    read = (
        file.read1 if isinstance(file, io.BufferedIOBase) else file.read
    )  # what one step gave, not lost with the next
    at = 0
    while True:
        try:
            chunk = read(CHUNK_BYTES)
        except _FAULTS as error:
            reason = TRUNCATED if isinstance(error, EOFError | tarfile.ReadError) else DAMAGED
            reason = CHECKSUM if "CRC" in str(error) else reason
            raise broken_file(name, reason, at, size) from error
        if not chunk:
            return
        yield chunk
        at += len(chunk)


class _Member(Chunks):
    """The bytes of a file within a zip."""

    def __init__(self, archive: str, name: str) -> None:
        super().__init__(f"{archive}:{name}")
        self._archive, self._name = archive, name

    def __iter__(self) -> Iterator[bytes]:
        with ExitStack() as stack:
            member = open_member(self._archive, self._name, stack)
            self._size = member.size
            for chunk in unpack(member, self.path):
                self._end += len(chunk)
                yield chunk


def files_of(path: str) -> Iterator[Chunks]:
    """A file, or those within a zip but for its licence and notes; their `path` is zip:member."""
    if not is_zip(path):
        yield Chunks(path)
        return
    for name in sorted(member_names(path)):
        if not _NOT_TERMS.search(name):
            yield _Member(path, name)
