"""Nearest neighbours between two sets of vectors, by cosine and by CSLS, in blocks of bounded memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

BLOCK_ROWS = 1024
NEIGHBOURS = 10

Vectors = NDArray[np.float32]
Indices = NDArray[np.int64]


def unit_rows(vectors: Vectors) -> Vectors:
    """Rows scaled to length 1; a zero row stays zero. `[N, D]` to `[N, D]`."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)


def nearest_cosine(queries: Vectors, candidates: Vectors) -> Indices:
    """Index `[N]` of the first candidate (`[C, D]`, C >= 1) with the highest cosine, for each query (`[N, D]`)."""
    left, right = unit_rows(queries), unit_rows(candidates)
    return _by_block(left, lambda block: (block @ right.T).argmax(axis=1)).astype(np.int64)


def nearest_csls(queries: Vectors, candidates: Vectors, sources: Vectors, neighbours: int = NEIGHBOURS) -> Indices:
    """Index `[N]` of the candidate with the highest CSLS, which takes from the cosine what hubs have with everything.

    CSLS(x, y) = 2 cos(x, y) - r_T(x) - r_S(y): r_T(x) is the mean cosine of x with its k nearest candidates, r_S(y)
    that of y with its k nearest sources (Conneau et al. 2018, section 2.3). r_T(x) moves no rank and is left out.

    Args:
        queries: `[N, D]`.
        candidates: `[C, D]`, C >= 1.
        sources: `[S, D]`, S >= 1: all words of the queries' language, also those that are not asked.
        neighbours: k, at most S of them are used.
    """
    left, right = unit_rows(queries), unit_rows(candidates)
    others, k = unit_rows(sources), min(neighbours, len(sources))
    density = _by_block(right, lambda block: np.partition(block @ others.T, -k, axis=1)[:, -k:].mean(axis=1))
    return _by_block(left, lambda block: (2 * (block @ right.T) - density).argmax(axis=1)).astype(np.int64)


def _by_block(rows: Vectors, function: Callable[[Vectors], NDArray]) -> NDArray:
    blocks = [function(rows[start : start + BLOCK_ROWS]) for start in range(0, len(rows), BLOCK_ROWS)]
    return np.concatenate(blocks) if blocks else np.empty(0)
