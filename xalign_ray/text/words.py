"""Words of a line by one rule for every tokenizer, and which pieces each of them has.

The rule is Unicode's UAX 29 with three changes: punctuation always stands apart, also an apostrophe or a point between
letters, because dictionaries have neither (`l'eau` is `l`, `'`, `eau`); Japanese kana stand one by one, as Chinese
characters do; and so do letters of Thai, Lao, Burmese, Khmer and their like, which have no blanks between words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import regex
from numpy.typing import NDArray

from xalign_ray.text.rows import Index

WORDS_VERSION = 1  # raise it, and SHARDS_VERSION, when the same line would have other words
_ATTACHED = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*"  # combining marks, joiners, soft hyphens: part of what is before
_LETTER = r"(?!\p{P})[\p{WB=ALetter}\p{WB=Hebrew_Letter}\p{WB=Numeric}]"  # none of a script without blanks
_ALONE = r"[\p{L}\p{Ideographic}]"  # all others
_SIGN = rf"\p{{RI}}\p{{RI}}|\p{{ExtPict}}{_ATTACHED}(?:(?<=\u200d)\p{{ExtPict}}{_ATTACHED})*|[^\s\u200b]"
# A word of letters is the one group; U+200B is as good as a blank: it stands between words of Khmer and Thai.
_WORD = regex.compile(rf"((?:{_LETTER}{_ATTACHED})+|{_ALONE}{_ATTACHED})|(?:{_SIGN}){_ATTACHED}")
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

    def trim(self, first: Index, last: Index) -> tuple[Index, Index]:
        """Runs of words without the punctuation at their ends; a run of punctuation alone stays.

        Args:
            first: [R] the first word of each run, and `last` [R] its last.
        """
        numbers = np.arange(len(self.lettered))
        before = np.maximum.accumulate(np.where(self.lettered, numbers, -1))
        after = np.minimum.accumulate(np.where(self.lettered, numbers, len(numbers))[::-1])[::-1]
        has_letters = after[first] <= last
        return np.where(has_letters, after[first], first), np.where(has_letters, before[last], last)


def find_line_words(lines: Sequence[str]) -> LineWords:
    """The words of lines in NFC."""
    spans: list[tuple[int, int, bool]] = []
    at = 0
    line_begin = [0]
    for line in lines:
        spans += [(at + m.start(), at + m.end(), m.lastindex == 1) for m in _WORD.finditer(line)]
        at += len(line) + 1
        spans.append((at - 1, at, False))
        line_begin.append(at)
    table = np.asarray(spans, np.int64).reshape(-1, 3)
    begin, end = table[:, 0], table[:, 1]
    places = np.arange(at)
    return LineWords(
        first=np.searchsorted(end, places, "right"),
        last=np.searchsorted(begin, places, "left") - 1,
        line_begin=np.asarray(line_begin, np.int64),
        begin=begin,
        end=end,
        lettered=table[:, 2].astype(bool),
    )


def end_of_marks(text: str, end: int, following: int) -> int:
    """The end of a piece with the marks behind it: offsets end before those that a normalizer strips.

    Args:
        end: by the tokenizer's offsets.
        following: where what comes next begins.
    """
    found = _MARKS.match(text, end, max(end, following))
    return found.end() if found else end
