"""Finds dictionary entries of several words in lines: the longest match, from left to right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from xalign_ray.text.rows import Index, Ints
from xalign_ray.text.words import FIRST_UNSPACED, find_line_words

LONGEST_PHRASE = 16  # words; a longer entry is found only where a tokenizer makes one word of it
NO_PART = -1


def split_forms(forms: Sequence[str]) -> list[str]:
    """The words of each form, by text/words.py, with a line break between them."""
    found = list(forms)
    several = [number for number, form in enumerate(forms) if not form.isalpha() or max(form) >= FIRST_UNSPACED]
    words = find_line_words([forms[number] for number in several])
    bounds = np.searchsorted(words.begin, words.line_begin).tolist()
    for line, number in enumerate(several):
        mine = slice(bounds[line], bounds[line + 1] - 1)  # the last word of a line is its end
        if mine.stop - mine.start > 1:
            begin, end = (places[mine] - words.line_begin[line] for places in (words.begin, words.end))
            texts = (forms[number][first:last] for first, last in zip(begin.tolist(), end.tolist(), strict=True))
            found[number] = "\n".join(texts)
    return found


class Phrases:
    """Entries of several words, as a tree that is walked for all words of a batch at once.

    Letters of scripts without blanks are words of their own, see text/words.py. A tokenizer may join neighbouring words
    by a piece that they share. So each run of an entry's words is a part, and the tree has a branch for each part that
    may follow a beginning. Blanks between words do not count.

    Attributes:
        parts: the number of each (language id, words) that may be a word, or several that share a piece, of an entry.
        has_several_words: of each entry by number.
    """

    def __init__(self, entries: Mapping[tuple[int, str], int]) -> None:
        self.parts: dict[tuple[int, str], int] = {}
        self.has_several_words = np.zeros(max(entries.values(), default=-1) + 1, bool)
        nodes: dict[tuple[int, str], int] = {}
        branches: dict[tuple[int, int], int] = {}
        whole: dict[int, int] = {}
        for ((language, _), entry), form in zip(entries.items(), split_forms([f for _, f in entries]), strict=True):
            words = form.split("\n")
            self.has_several_words[entry] = len(words) > 1
            if not 2 <= len(words) <= LONGEST_PHRASE:
                continue
            path = [NO_PART]
            for end in range(1, len(words) + 1):
                node = nodes.setdefault((language, "\n".join(words[:end])), len(nodes))
                for begin, before in enumerate(path):
                    part = self.parts.setdefault((language, "\n".join(words[begin:end])), len(self.parts))
                    branches[before, part] = node
                path.append(node)
            whole.setdefault(path[-1], entry)
        self._entry = np.full(len(nodes), NO_PART, np.int64)
        self._entry[[*whole]] = [*whole.values()]
        table = np.asarray([(before, part, node) for (before, part), node in branches.items()], np.int64).reshape(-1, 3)
        keys = self._key(table[:, 0], table[:, 1])
        order = np.argsort(keys)
        self._branches, self._nodes = keys[order], table[order, 2]

    def find(self, parts: Ints, word_length: Ints, line_words: Ints, longest: int) -> tuple[Index, Index, Index]:
        """The entries of two words and more, none over another.

        Args:
            parts: [3, W] the number in `self.parts` of each word's form as the first word of an entry, inside one, and
                as its last; NO_PART where it has none. They differ where a word shares a piece with punctuation.
            word_length: [W] pieces of each word.
            line_words: [N] words of each line.
            longest: pieces of an entry.

        Returns:
            The first word of each [M], how many words it has, and its entry.
        """
        as_first, inside, as_last = parts
        pieces = np.concatenate(([0], np.cumsum(word_length, dtype=np.int64)))
        line_end = np.repeat(np.cumsum(line_words, dtype=np.int64), line_words)
        words, entry = np.ones(len(as_first), np.int64), np.full(len(as_first), NO_PART, np.int64)
        first = np.flatnonzero(as_first >= 0)
        first, node = self._walk(first, np.full(len(first), NO_PART, np.int64), as_first[first])
        count = 1
        while len(first):
            goes_on = first + count < line_end[first]
            first, node = first[goes_on], node[goes_on]
            begin, end = self._walk(first, node, as_last[first + count])
            first, node = self._walk(first, node, inside[first + count])
            count += 1
            whole = (self._entry[end] >= 0) & (pieces[begin + count] - pieces[begin] <= longest)
            words[begin[whole]], entry[begin[whole]] = count, self._entry[end[whole]]
        at = _without_overlap(np.flatnonzero(words > 1), words)
        return at, words[at], entry[at]

    def _walk(self, first: Index, node: Index, part: NDArray[np.integer]) -> tuple[Index, Index]:
        """Those words from which the tree goes on with a part, and to where."""
        keys = self._key(node, part)
        at = np.minimum(np.searchsorted(self._branches, keys), len(self._branches) - 1)
        goes_on = (part >= 0) & (self._branches[at] == keys)
        return first[goes_on], self._nodes[at[goes_on]]

    def _key(self, node: Index, part: NDArray[np.integer]) -> Index:
        return (node + 1) * len(self.parts) + part


def _without_overlap(at: Index, words: Index) -> Index:
    """The matches, in order, that begin behind the end of the match before."""
    kept, end = [], 0
    for first, count in zip(at.tolist(), words[at].tolist(), strict=True):
        if first >= end:
            kept.append(first)
            end = first + count
    return np.asarray(kept, np.int64)
