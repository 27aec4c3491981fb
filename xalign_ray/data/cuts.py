"""Where sources are cut into parts: found by reading their files, once, and kept by the content of these."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xalign_ray.data.sources import parts as splitting
from xalign_ray.data.sources.formats import parts
from xalign_ray.data.sources.open import Span
from xalign_ray.data.sources.parts import Part
from xalign_ray.work.artifacts import hash_value, whole_json, write_json

CUTS = "cuts"  # in the output's data folder: its recipes share them
CUTS_VERSION = 2  # raise it when the same files would be cut elsewhere


class KeptCuts:
    """The cuts of an output folder's sources, a small file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def of_output(cls, output: str | Path) -> KeptCuts:
        """Those of an output folder."""
        return cls(Path(output).absolute() / "data" / CUTS)

    def of(
        self, format_: str, files: Sequence[str], hashes: Sequence[str], columns: Sequence[str] | None = None
    ) -> list[Part]:
        """The parts of files that have these hashes; they are opened if no recipe of the output has split them.

        Args:
            columns: which the files are looked for, as in `parts`.
        """
        suffixes = [Path(file).suffix for file in files]  # they say of some files how they are packed
        key = hash_value([CUTS_VERSION, splitting.PART_BYTES, format_, suffixes, list(hashes)])
        path = self._folder / f"{key[:32]}.json"
        known = whole_json(path, "parts", "sha256")
        if known and known["sha256"] == hash_value(known["parts"]):
            return [_from_fields(format_, files, fields) for fields in known["parts"]]
        found = parts(format_, files, columns)
        listed = [_as_fields(files, part) for part in found]
        write_json(path, {"parts": listed, "sha256": hash_value(listed)})
        return found


def _as_fields(files: Sequence[str], part: Part) -> list[Any]:
    """A part of files by their numbers: the same files may lie elsewhere tomorrow."""
    spans = [[span.start, span.end] for span in part.spans]
    return [[files.index(path) for path in part.paths], spans, part.first_line, part.borders]


def _from_fields(format_: str, files: Sequence[str], fields: Sequence[Any]) -> Part:
    numbers, spans, first_line, borders = fields
    paths = tuple(files[int(number)] for number in numbers)
    return Part(format_, paths, tuple(Span(*span) for span in spans), first_line, borders)
