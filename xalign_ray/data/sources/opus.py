"""Reads zip and tar archives of Moses pairs, as OPUS publishes them next to their licence and notes."""

from __future__ import annotations

import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import IO, BinaryIO, NamedTuple, cast

from xalign_ray.config.language_codes import check_language, is_language
from xalign_ray.data.sources.broken import CHECKSUM, DAMAGED, TRUNCATED, BrokenFile, BrokenFileError
from xalign_ray.data.sources.column_languages import fits
from xalign_ray.data.sources.files import open_bytes
from xalign_ray.data.sources.moses import pair_lines
from xalign_ray.data.sources.open import CHUNK_BYTES, number_lines
from xalign_ray.data.sources.parts import Part
from xalign_ray.data.sources.records import Record
from xalign_ray.errors import DataError

_ZIP = b"PK\x03\x04"
_FAULTS = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.ReadError)  # OSError: a wrong CRC


class Member(NamedTuple):
    """A file within an archive, and its size unpacked."""

    file: IO[bytes]
    size: int


def read_opus(part: Part, languages: Sequence[str]) -> Iterator[Record]:
    """Pairs of the two members whose names end in the languages, as `Tanzil.en-sw.sw` does; `source` is archive:member.

    Raises:
      DataError: the archive is not whole, is encrypted, or has not one member for each language.
      BrokenFileError: a member cannot be read on; after the pairs before it.
    """
    (path,) = part.paths
    found = member_names(path)
    members = [_find_member(path, found, code) for code in languages]
    names = [f"{path}:{member}" for member in members]
    with ExitStack() as stack:
        unpacked = [unpack(open_member(path, member, stack), name) for member, name in zip(members, names, strict=True)]
        yield from pair_lines(list(map(number_lines, unpacked, names)), names, languages)


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


def _find_member(path: str, names: Sequence[str], language: str) -> str:
    """`zh` takes .zh, and .zh_CN if that is the only Chinese there."""
    written = {name: name.rpartition(".")[2].replace("_", "-") for name in names if "." in name}
    codes = {name: check_language(code) for name, code in written.items() if is_language(code)}
    exact = [name for name, code in codes.items() if code == language]
    found = exact or [name for name, code in codes.items() if fits(code, language)]
    if len(found) != 1:
        listed = ", ".join(found or names) or "nothing"
        count = f"{len(found)} members" if found else "no member"
        raise DataError(f"{path} has {count} whose name ends in .{language}; it holds {listed}.")
    return found[0]


def open_member(path: str, name: str, stack: ExitStack) -> Member:
    """A member by a handle of its own: two that are read side by side in a packed tar would each turn it back."""
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
      BrokenFileError: it cannot be read on; after the pieces before it.
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
            share = 1 - at / size if size else 1.0
            raise BrokenFileError(BrokenFile(name, reason, at, size, share)) from error
        if not chunk:
            return
        yield chunk
        at += len(chunk)
