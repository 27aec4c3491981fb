"""Members of zip and tar archives, as OPUS publishes them next to their licence and notes."""

from __future__ import annotations

import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast

from xalign_ray.errors import DataError
from xalign_ray.sources.open import (
    CHECKSUM,
    CHUNK_BYTES,
    DAMAGED,
    TRUNCATED,
    Chunks,
    open_bytes,
)

_ZIP = b"PK\x03\x04"
_FAULTS = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.ReadError)  # OSError: a wrong CRC
_NOT_TERMS = re.compile(r"(^|/)(readme|licen[sc]e|copying)\b|\.(md|pdf|html?|dtd|rng|xsd|sch|css|xsl)$", re.IGNORECASE)


def is_zip(path: str) -> bool:
    """Whether a file is a zip archive, by its first bytes."""
    with open_bytes(path) as file:
        return file.read(len(_ZIP)) == _ZIP


@contextmanager
def _opened(path: str) -> Iterator[zipfile.ZipFile | tarfile.TarFile]:
    """Opens an archive by its own handle: two members of a packed tar that share a handle would rewind it in turn."""
    with open_bytes(path) as file:
        packed_by_zip = is_zip(path)
        try:
            with zipfile.ZipFile(file) if packed_by_zip else tarfile.open(fileobj=file, mode="r:*") as archive:
                yield archive
        except _FAULTS as error:
            kind = "zip" if packed_by_zip else "tar"
            raise DataError(f"{path} is no {kind} file, or is cut short ({error}). Fetch it again.") from None
        except RuntimeError as error:  # for a password or a packing that zipfile does not know
            raise DataError(
                f"{path} cannot be unpacked here: {error}. Unpack it, and read it with format moses."
            ) from None


def member_names(path: str) -> list[str]:
    """The files in an archive, but for those that Apple's programs add: `._x.en` and `__MACOSX/`.

    Raises:
      DataError: it is no zip or tar archive, or is not whole.
    """
    with _opened(path) as archive:
        if isinstance(archive, zipfile.ZipFile):
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
        else:
            names = [member.name for member in archive if member.isfile()]
    return [name for name in names if not any(part == "__MACOSX" or part.startswith("._") for part in name.split("/"))]


class Member(Chunks):
    """The bytes of a file within an archive; its `path` is archive:member.

    Iterating raises:
      DataError: the archive is not whole, or its packing is not known.
      BrokenFileError: the member cannot be read on.
    """

    def __init__(self, archive: str, name: str) -> None:
        super().__init__(f"{archive}:{name}")
        self._archive, self._name = archive, name

    def __iter__(self) -> Iterator[bytes]:
        with _opened(self._archive) as archive:
            if isinstance(archive, zipfile.ZipFile):
                self._size, file = archive.getinfo(self._name).file_size, archive.open(self._name)
            else:
                info = archive.getmember(self._name)
                self._size, file = info.size, cast("IO[bytes]", archive.extractfile(info))
            while True:
                try:
                    chunk = file.read(CHUNK_BYTES)
                except _FAULTS as error:
                    reason = TRUNCATED if isinstance(error, EOFError | tarfile.ReadError) else DAMAGED
                    raise self.broken(CHECKSUM if "CRC" in str(error) else reason) from error
                if not chunk:
                    return
                self._end += len(chunk)
                yield chunk


def files_of(path: str) -> Iterator[Chunks]:
    """A file, or those within a zip but for its licence and notes; their `path` is zip:member."""
    if not is_zip(path):
        yield Chunks(path)
        return
    for name in sorted(member_names(path)):
        if not _NOT_TERMS.search(name):
            yield Member(path, name)
