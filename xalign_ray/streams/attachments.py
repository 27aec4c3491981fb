"""What the sentences of pairs bring along: hard negatives, and vectors of a teacher."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xalign_ray.shards.rows import NO_ENTRY, Index, Ints, Rows, run_index, spans, starts, sum_runs


def with_negatives(rows: Rows, of_first: Index, of_second: Index) -> Rows:
    """Pairs, a row each, of which each segment brings the pieces of its negative, cut to its translation's length.

    So negatives fit wherever translations do. A segment without a negative brings its translation, which the loss
    leaves out as it leaves out all equal texts.

    Args:
        of_first: number of the pair whose second segment is the negative of each pair's first one, [N]; -1 for none.
        of_second: number of the pair whose first segment is the negative of each pair's second one, [N].
    """
    pair = np.arange(len(rows))
    partner = np.stack([2 * pair + 1, 2 * pair], axis=1).ravel()
    mined = np.stack([2 * of_first + 1, 2 * of_second], axis=1).ravel()
    source = np.where(np.stack([of_first, of_second], axis=1).ravel() < 0, partner, mined)
    pieces = sum_runs(rows.word_length, rows.segment_words)
    length = np.minimum(pieces[source], pieces[partner])
    at = spans(starts(pieces)[source], length)
    return replace(rows, segment_vector=length.astype(np.int32), vector=rows.pieces[at])


def negatives_of(rows: Rows, segment: int) -> Rows:
    """The negatives that the first (0) or second (1) segment of every pair brings, in the language of the other."""
    own = np.arange(segment, len(rows.segment_words), 2)
    other = np.arange(1 - segment, len(rows.segment_words), 2)
    length = rows.segment_vector[own]
    pieces = rows.vector[spans(starts(rows.segment_vector)[own], length)]
    none = np.zeros(0, np.int32)
    return Rows(
        pieces=pieces,
        word_length=np.ones(len(pieces), np.int32),
        entry=np.full(len(pieces), NO_ENTRY, np.int32),
        segment_words=length,
        segment_language=rows.segment_language[other],
        row_segments=(rows.row_segments // 2).astype(np.int32),
        segment_links=np.zeros(len(own), np.int32),
        link_from=none,
        link_to=none,
    )


# Sentence vectors of a teacher, which rows of pairs bring along, as a column of a batch.

STORED = np.float16  # two numbers in an int32, of which shards are made
PER_INT = 2


class VectorShape(NamedTuple):
    """most: pairs of a row, at most. width: numbers of a vector."""

    most: int
    width: int


def as_ints(vectors: NDArray[np.float32]) -> Ints:
    """Vectors [n, D], D even, one after the other as rows keep them."""
    return np.ascontiguousarray(vectors.astype(STORED)).view(np.int32).ravel()


def teacher_vectors(rows: Rows, shape: VectorShape) -> NDArray[np.uint8]:
    """[N, most, 2 * width] the fp16 vectors of each row's pairs in order, as bytes; zero behind the last.

    A pair has one vector, whichever of its segments brings it.
    """
    pairs = rows.row_segments // 2
    row = run_index(pairs)
    column = np.zeros((len(rows), *shape), STORED)
    column[row, np.arange(len(row)) - starts(pairs)[row]] = rows.vector.view(STORED).reshape(-1, shape.width)
    return column.view(np.uint8)
