"""Sentence pairs of about the same lengths, padded together: the arrays that the hidden Markov aligner works on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]
Reals = NDArray[np.float32]

BLOCK_PAIRS = 256
BLOCK_CELLS = 1 << 17  # cells worked on together: what stays in a core's cache

PADDING, UNKNOWN = -2, -1


@dataclass(frozen=True)
class Block:
    """Pairs [B] whose words are numbered: first [B, I] and second [B, J], filled up with PADDING."""

    pairs: Index
    first: Index
    second: Index

    @property
    def shape(self) -> tuple[int, int, int]:
        """B, J, I: of arrays with a cell for each word of the second side and each of the first."""
        return len(self.pairs), self.second.shape[1], self.first.shape[1]

    def keys(self, second_words: int) -> Index:
        """A number for each cell's pair of words, [B, J, I]; negative where a word is padding or unknown."""
        first, second = self.first[:, None, :], self.second[:, :, None]
        return np.where((first < 0) | (second < 0), np.minimum(first, second), first * second_words + second)


def make_blocks(first: Sequence[Index], second: Sequence[Index]) -> Iterator[Block]:
    """Groups pairs by length, so that little is padding; pairs of which a side is empty are in no block."""
    lengths = np.asarray([(len(a), len(b)) for a, b in zip(first, second, strict=True)], np.int64).reshape(-1, 2)
    full = np.flatnonzero(lengths.min(axis=1) > 0)
    order = full[np.lexsort((lengths[full, 1], lengths[full, 0] // 4))]
    begin = 0
    while begin < len(order):
        end = begin + 1
        high = lengths[order[begin]]
        while end < len(order) and end - begin < BLOCK_PAIRS:
            higher = np.maximum(high, lengths[order[end]])
            if (end + 1 - begin) * higher[0] * higher[1] > BLOCK_CELLS:
                break
            high, end = higher, end + 1
        chosen = order[begin:end]
        yield Block(chosen, _pad([first[n] for n in chosen], high[0]), _pad([second[n] for n in chosen], high[1]))
        begin = end


def number_words(texts: Sequence[Sequence[str]], known: Mapping[str, int], longest: int) -> list[Index]:
    """The numbers of the first `longest` words of each side, UNKNOWN where a word has none."""
    return [np.asarray([known.get(word, UNKNOWN) for word in text[:longest]], np.int64) for text in texts]


def _pad(texts: Sequence[Index], length: int) -> Index:
    padded = np.full((len(texts), length), PADDING, np.int64)
    for row, text in zip(padded, texts, strict=True):
        row[: len(text)] = text
    return padded
