"""Reads the zip files of OPUS: Moses pairs that lie in an archive beside its licence and notes."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import cast

from xalign_ray.data.sources.files import open_bytes
from xalign_ray.data.sources.moses import pair_lines
from xalign_ray.data.sources.open import CHUNK_BYTES, DAMAGED, TRUNCATED, ArchiveFaultError, number_lines
from xalign_ray.data.sources.parts import Part
from xalign_ray.data.sources.records import Record
from xalign_ray.errors import DataError
from xalign_ray.text.languages import check_language, is_language


def read_opus(part: Part, languages: Sequence[str]) -> Iterator[Record]:
    """Pairs of the two members whose names end in the languages, as `Tanzil.en-sw.sw` does; `source` is zip:member.

    Raises:
      DataError: the zip is not whole, or has not one member for each language.
    """
    (path,) = part.paths
    try:
        with open_bytes(path) as file, zipfile.ZipFile(file) as archive:
            members = [_find_member(path, archive.namelist(), code) for code in languages]
            lines = [number_lines(_unpack(archive, member)) for member in members]
            yield from pair_lines(lines, [f"{path}:{member}" for member in members], languages)
    except zipfile.BadZipFile as error:
        raise DataError(f"{path} is no zip file, or is cut short ({error}). Fetch it again.") from None


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


def _unpack(archive: zipfile.ZipFile, member: str) -> Iterator[bytes]:
    with cast("zipfile.ZipExtFile", archive.open(member)) as file:
        while True:
            try:
                chunk = file.read1(CHUNK_BYTES)
            except EOFError as error:
                raise ArchiveFaultError(TRUNCATED) from error
            except (zlib.error, zipfile.BadZipFile) as error:  # the latter is a wrong CRC
                raise ArchiveFaultError(DAMAGED) from error
            if not chunk:
                return
            yield chunk
