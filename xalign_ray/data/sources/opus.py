"""Reads the zip files of OPUS: Moses pairs that lie in an archive next to its licence and notes."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import cast

from xalign_ray.data.sources.broken import CHECKSUM, DAMAGED, TRUNCATED, BrokenFile, BrokenFileError
from xalign_ray.data.sources.files import open_bytes
from xalign_ray.data.sources.moses import pair_lines
from xalign_ray.data.sources.open import CHUNK_BYTES, number_lines
from xalign_ray.data.sources.parts import Part
from xalign_ray.data.sources.records import Record
from xalign_ray.errors import DataError
from xalign_ray.text.language_codes import check_language, is_language

_FAULTS = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)  # the last is a wrong CRC


def read_opus(part: Part, languages: Sequence[str]) -> Iterator[Record]:
    """Pairs of the two members whose names end in the languages, as `Tanzil.en-sw.sw` does; `source` is zip:member.

    Raises:
      DataError: the zip is not whole, is encrypted, or has not one member for each language.
      BrokenFileError: a member cannot be read on; after the pairs before it.
    """
    (path,) = part.paths
    try:
        with open_bytes(path) as file, zipfile.ZipFile(file) as archive:
            members = [_find_member(path, archive.namelist(), code) for code in languages]
            names = [f"{path}:{member}" for member in members]
            unpacked = [_unpack(archive, path, member) for member in members]
            yield from pair_lines(list(map(number_lines, unpacked, names)), names, languages)
    except zipfile.BadZipFile as error:
        raise DataError(f"{path} is no zip file, or is cut short ({error}). Fetch it again.") from None
    except RuntimeError as error:  # of zipfile, for a password or a packing that it does not know
        raise DataError(f"{path} cannot be unpacked here: {error}. Unpack it, and read it with format moses.") from None


def _find_member(path: str, names: Sequence[str], language: str) -> str:
    """`zh` takes .zh, and .zh_CN if that is the only Chinese there."""
    written = {name: name.rpartition(".")[2].replace("_", "-") for name in names if "." in name}
    codes = {name: check_language(code) for name, code in written.items() if is_language(code)}
    exact = [name for name, code in codes.items() if code == language]
    found = exact or [name for name, code in codes.items() if code.startswith(f"{language}-")]
    if len(found) != 1:
        listed = ", ".join(found or names) or "nothing"
        count = f"{len(found)} members" if found else "no member"
        raise DataError(f"{path} has {count} whose name ends in .{language}; it holds {listed}.")
    return found[0]


def _unpack(archive: zipfile.ZipFile, path: str, member: str) -> Iterator[bytes]:
    at, size = 0, archive.getinfo(member).file_size
    with cast("zipfile.ZipExtFile", archive.open(member)) as file:
        while True:
            try:
                chunk = file.read1(CHUNK_BYTES)
            except _FAULTS as error:
                reason = TRUNCATED if isinstance(error, EOFError) else DAMAGED
                reason = CHECKSUM if "CRC" in str(error) else reason
                share = 1 - at / size if size else 1.0
                raise BrokenFileError(BrokenFile(f"{path}:{member}", reason, at, size, share)) from error
            if not chunk:
                return
            yield chunk
            at += len(chunk)
