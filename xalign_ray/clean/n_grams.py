"""N-grams that stand twice in a document: found by hashes of words, for all documents at once, with numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from xalign_ray.shards.counter_random import mix
from xalign_ray.shards.rows import Index, starts
from xalign_ray.vocabulary.words import Characters

Hashes = NDArray[np.uint64]

_CHARACTER, _WORD, _DOCUMENT = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93))


def unit_hashes(text: Characters) -> Hashes:
    """A hash of each unit [U]: the same characters, the same hash."""
    if not len(text.unit_length):
        return np.zeros(0, np.uint64)
    place = np.arange(len(text.points)) - np.repeat(starts(text.unit_length), text.unit_length)
    powers = np.cumprod(np.full(int(place.max()) + 1, _CHARACTER))
    mixed = (text.points.astype(np.uint64) + np.uint64(1)) * powers[place]
    return mix(np.add.reduceat(mixed, starts(text.unit_length)))


def top_n_grams(
    hashes: Hashes, lengths: Index, document: Index, sizes: Sequence[int], documents: int
) -> Iterator[tuple[int, Index]]:
    """For each n of `sizes`: characters of a document's most frequent n-gram, each time it stands there, [D].

    Of n-grams that are as frequent the longest; 0 where none stands there twice.

    Args:
        hashes: of the words of all documents [W], with their `lengths` in characters and their `document`, ascending.
    """
    for n, places, group in _standing_twice(hashes, document, sizes):
        counts = np.bincount(group)[group]
        characters = _spans(lengths, n)[places]
        order = np.lexsort((characters, counts, document[places]))
        found = np.zeros(documents, np.int64)
        found[document[places][order]] = (counts * characters)[order]  # the last of a document counts
        yield n, found


def duplicate_n_grams(
    hashes: Hashes, lengths: Index, document: Index, sizes: Sequence[int], documents: int
) -> Iterator[tuple[int, Index]]:
    """For each n of `sizes`: characters of the words of a document that are in an n-gram that stood before in it, [D].

    Args:
        As of top_n_grams.
    """
    for n, places, group in _standing_twice(hashes, document, sizes):
        again = np.ones(len(places), bool)
        again[np.unique(group, return_index=True)[1]] = False
        change = np.zeros(len(hashes) + 1, np.int64)
        change[places[again]] += 1
        np.subtract.at(change, places[again] + n, 1)
        covered = np.cumsum(change[:-1]) > 0
        yield n, np.bincount(document, covered * lengths, documents).astype(np.int64)


def _standing_twice(hashes: Hashes, document: Index, sizes: Sequence[int]) -> Iterator[tuple[int, Index, Index]]:
    """For each n: the places, ascending, where an n-gram begins that its document has twice, and the n-gram's number.

    What stands twice does so without its last word too: each n looks only where a shorter one was found.
    """
    places = np.arange(len(hashes))
    rolled, rolled_to = mix(document.astype(np.uint64) * _DOCUMENT), 0
    for n in sizes:
        places = places[places <= len(hashes) - n]
        places = places[document[places] == document[places + n - 1]]
        rolled = rolled.copy()
        for k in range(rolled_to, n):
            rolled[places] = rolled[places] * _WORD + hashes[places + k]
        rolled_to = n
        _, group, counts = np.unique(rolled[places], return_inverse=True, return_counts=True)
        twice = counts[group] > 1
        places, group = places[twice], group[twice]
        yield n, places, group


def _spans(lengths: Index, n: int) -> Index:
    """Characters of the n words from each word on [W]; of fewer at the end."""
    total = np.concatenate(([0], np.cumsum(lengths)))
    return total[np.minimum(np.arange(len(lengths)) + n, len(lengths))] - total[:-1]
