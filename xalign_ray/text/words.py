"""Words of a line by one rule for every tokenizer, which pieces each of them has, and the blanks of data files.

The rule is Unicode's UAX 29 with three changes: punctuation always stands apart, also an apostrophe or a point between
letters, because dictionaries have neither (`l'eau` is `l`, `'`, `eau`); Japanese kana stand one by one, as Chinese
characters do; and so do letters of Thai, Lao, Burmese, Khmer and their like, which have no blanks between words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import regex
from numpy.typing import NDArray

from xalign_ray.text.rows import Index

WORDS_VERSION = 1  # raise it, and SHARDS_VERSION, when the same line would have other words
_SIGN, _BLANK, _ATTACHED, _LETTER, _ALONE, _PICTURE, _FLAG = range(7)
_KINDS = {  # later ones win
    _PICTURE: r"\p{ExtPict}",
    _FLAG: r"\p{RI}",
    _ALONE: r"[\p{L}\p{Ideographic}]",  # letters of scripts without blanks: those that are no _LETTER
    _LETTER: r"(?!\p{P})[\p{WB=ALetter}\p{WB=Hebrew_Letter}\p{WB=Numeric}]",
    _ATTACHED: r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]",  # marks, joiners, soft hyphens: part of what is before them
    _BLANK: r"[\s\u200b]",  # U+200B stands between words of Khmer and Thai
}
_ASSIGNED = ((0, 0xD800), (0xE000, 0x33480), (0xE0000, 0xE1000))  # all beyond are signs
FIRST_UNSPACED = "\u0e01"  # the first letter of a script without blanks: Thai
_JOINER = 0x200D
_MARKS = regex.compile(r"[\p{M}\u200c\u200d]*")


@dataclass(frozen=True)
class LineWords:
    """The words of lines by the rule, as flat arrays.

    Attributes:
        first: [C] for each place in a line, its end included, the number of the word that covers it, or else of the
            next one. Each line has one more word, empty, at its end.
        last: [C] the number of the word that covers the character before the place, or else of the one before.
        line_begin: [N + 1] where each line's places begin.
        begin: [W] the place of each word's first character, and `end` [W] the place behind its last.
        lettered: [W] whether a word is more than punctuation.
    """

    first: Index
    last: Index
    line_begin: Index
    begin: Index
    end: Index
    lettered: NDArray[np.bool_]

    def trim(self, first: Index, last: Index) -> tuple[Index, Index, NDArray[np.bool_]]:
        """Runs of words without the punctuation at their ends; a run of punctuation alone stays.

        Args:
            first: [R] the first word of each run, and `last` [R] its last.

        Returns:
            The same of the trimmed runs, and whether they are more than punctuation.
        """
        numbers = np.arange(len(self.lettered))
        before = np.maximum.accumulate(np.where(self.lettered, numbers, -1))
        after = np.minimum.accumulate(np.where(self.lettered, numbers, len(numbers))[::-1])[::-1]
        has_letters = after[first] <= last
        return np.where(has_letters, after[first], first), np.where(has_letters, before[last], last), has_letters


@lru_cache(maxsize=1)
def _kind_of_points() -> NDArray[np.uint8]:
    """The kind of each code point."""
    kinds = np.zeros(0x110000, np.uint8)
    for first, last in _ASSIGNED:
        characters = "".join(map(chr, range(first, last)))
        for kind, pattern in _KINDS.items():
            for run in regex.finditer(f"(?:{pattern})+", characters):
                kinds[first + run.start() : first + run.end()] = kind
    return kinds


def find_line_words(lines: Sequence[str]) -> LineWords:
    """The words of lines in NFC."""
    points = np.frombuffer("".join(f"{line}\n" for line in lines).encode("utf-32-le", "surrogatepass"), "<u4")
    line_begin = np.zeros(len(lines) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1, out=line_begin[1:])
    kind = _kind_of_points()[points]
    blank = kind == _BLANK
    attached = kind == _ATTACHED
    attached[1:] &= ~blank[:-1]
    attached[:1] = False
    places = np.arange(len(points))
    base = np.maximum.accumulate(np.where(attached, 0, places))  # the character that each attached one belongs to
    before = np.full(len(points), _BLANK, np.uint8)  # the kind of the character before, and of what it is attached to
    before[1:] = kind[base[:-1]]
    begins = ~(blank | attached | ((kind == _LETTER) & (before == _LETTER)))
    begins &= ~_continues_sign(points, kind, before)
    ends_line = np.zeros(len(points), bool)
    ends_line[line_begin[1:] - 1] = True
    begin = np.flatnonzero(begins | ends_line)
    borders = np.flatnonzero(begins | blank)
    borders = np.append(borders, len(points))
    end = borders[np.searchsorted(borders, begin) + 1]
    end[ends_line[begin]] = begin[ends_line[begin]] + 1
    begun = np.zeros(len(points) + 1, np.int64)
    np.cumsum(begins | ends_line, out=begun[1:])
    return LineWords(
        first=np.cumsum(np.bincount(end, minlength=len(points) + 1))[: len(points)],
        last=begun[: len(points)] - 1,
        line_begin=line_begin,
        begin=begin,
        end=end,
        lettered=np.isin(kind[begin], (_LETTER, _ALONE)),
    )


def _continues_sign(
    points: NDArray[np.uint32], kind: NDArray[np.uint8], before: NDArray[np.uint8]
) -> NDArray[np.bool_]:
    """The second letters of flags, and pictures behind a picture and a joiner."""
    continues = np.zeros(len(points), bool)
    continues[1:] = (kind[1:] == _PICTURE) & (before[1:] == _PICTURE) & (points[:-1] == _JOINER)
    flag = kind == _FLAG
    if flag.any():
        places = np.arange(len(points))
        begin_of_run = np.maximum.accumulate(np.where(flag, 0, places + 1))
        continues |= flag & ((places - begin_of_run) % 2 == 1)
    return continues


def end_of_marks(text: str, end: int, following: int) -> int:
    """The end of a piece with the marks behind it: offsets end before those that a normalizer strips.

    Args:
        end: by the tokenizer's offsets.
        following: where what comes next begins.
    """
    found = _MARKS.match(text, end, max(end, following))
    return found.end() if found else end


# Blanks between words and columns of data files: U+0020 and TAB, as the programs that write the files have them.
#
# Python's own `str.split()` also splits at U+0085, U+00A0, U+2009, U+202F, U+3000 and others. fast_align, eflomal and
# the Moses scripts take these for parts of words, so that links would point to the word before the right one.

BLANKS = " \t"
WORD = re.compile(rf"[^{BLANKS}]+")


def split_words(line: str) -> list[str]:
    """The words of a line, as the links of a word alignment count them: `"a\\u00a0! b"` has two."""
    return WORD.findall(line)
