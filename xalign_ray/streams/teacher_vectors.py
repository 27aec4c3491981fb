"""Sentence vectors of a teacher, which rows of pairs bring along, as a column of a batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xalign_ray.shards.rows import Ints, Rows, run_index, starts

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
