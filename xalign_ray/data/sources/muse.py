"""Reads MUSE dictionaries: a word and one translation a line, separated by any white space, as MUSE's own code does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xalign_ray.data.sources.open import read_lines
from xalign_ray.data.sources.parts import Part
from xalign_ray.data.sources.records import BadRow, Entry, Noted, Record, Skipped
from xalign_ray.text.look_up import trim_punctuation

_FAULTS = {1: "dictionary line has one column"}


def read_muse(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Entries of a dictionary, in the order of the file (MUSE: by frequency of the source word).

    Punctuation around a word is taken off and counted: the words of a text have none, so that it would never be found.
    """
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
            left, right = map(trim_punctuation, words)
            if [left, right] != words:
                yield Noted("dictionary lines with punctuation around a word, taken off", 1)
            yield Entry((first, second), (left, right), path, line.number)
