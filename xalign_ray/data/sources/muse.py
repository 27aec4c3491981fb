"""Reads MUSE dictionaries: a word and one translation a line, separated by any white space."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xalign_ray.data.sources.open import read_lines
from xalign_ray.data.sources.parts import Part
from xalign_ray.data.sources.records import BadRow, Entry, Record, Skipped

_FAULTS = {1: "dictionary line has one column"}


def read_muse(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped]:
    """Entries of a dictionary, in the order of the file (MUSE: by frequency of the source word)."""
    (path,) = part.paths
    first, second = languages
    for line in read_lines(path, part.spans[0], part.first_line):
        words = line.text.split()
        if line.fault:
            yield BadRow(path, line.number, line.fault)
        elif not words:
            yield Skipped("blank line")
        elif len(words) != 2:
            yield BadRow(path, line.number, _FAULTS.get(len(words), "dictionary line has more than two columns"))
        else:
            yield Entry((first, second), (words[0], words[1]), path, line.number)
