"""Weighs shared pieces by how alike they are used to a piece that only the new vocabulary has (FOCUS).

Formulas, and how the papers were read: docs/explanation/methods.md, Another vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

WINDOW = 5  # pieces to each side that count as used together
WIDTH = 300  # of a vector
_BLOCK = 512  # pieces that are compared at once

Vectors = NDArray[np.float32]


def piece_vectors(tokenizer: Tokenizer, lines: Sequence[str]) -> tuple[NDArray[np.int64], Vectors]:
    """The pieces of lines [N], ascending, and a unit vector for each [N, d] by the pieces around it.

    Positive pointwise mutual information of pieces in a window, reduced by a singular value decomposition (Levy and
    Goldberg 2014). Pieces with no such information are left out.
    """
    from scipy import sparse
    from sklearn.decomposition import TruncatedSVD

    encoded = [np.asarray(one.ids) for one in tokenizer.encode_batch(list(lines), add_special_tokens=False)]
    numbers, index = np.unique(np.concatenate([*encoded, np.zeros(0, int)]), return_inverse=True)
    if len(numbers) < 2:
        return np.zeros(0, np.int64), np.zeros((0, 1), np.float32)
    line = np.repeat(np.arange(len(encoded)), [len(one) for one in encoded])
    pairs = [
        (index[:-step][same], index[step:][same])
        for step in range(1, WINDOW + 1)
        for same in (line[:-step] == line[step:],)
    ]
    left, right = (np.concatenate(side) for side in zip(*pairs, strict=True))
    shape = (len(numbers), len(numbers))
    counts = sparse.coo_matrix((np.ones(len(left)), (left, right)), shape=shape).tocsr()
    counts = (counts + counts.T).tocoo()
    single = np.asarray(counts.sum(axis=1)).ravel()
    information = np.log(counts.data * counts.sum() / (single[counts.row] * single[counts.col]))
    positive = sparse.coo_matrix((np.maximum(information, 0), (counts.row, counts.col)), shape=shape).tocsr()
    reduced = TruncatedSVD(min(WIDTH, len(numbers) - 1), random_state=0).fit_transform(positive)
    lengths = np.linalg.norm(reduced, axis=1)
    known = lengths > 1e-6
    return numbers[known], (reduced[known] / lengths[known, None]).astype(np.float32)


def sparsemax(scores: NDArray[np.floating]) -> NDArray[np.floating]:
    """The nearest point of the simplex to each row [N, K]: mostly zeros (Martins and Astudillo 2016)."""
    ordered = -np.sort(-scores, axis=1)
    sums = np.cumsum(ordered, axis=1)
    rank = np.arange(1, scores.shape[1] + 1)
    support = (1 + rank * ordered > sums).sum(axis=1)
    threshold = (sums[np.arange(len(scores)), support - 1] - 1) / support
    return np.maximum(scores - threshold[:, None], 0)


def combine_similar(
    tokenizer: Tokenizer, lines: Sequence[str], shared: Mapping[int, int], wanted: Collection[int]
) -> dict[int, dict[int, float]]:
    """For each wanted piece of the lines the weights of old pieces: sparsemax of its cosines with shared ones.

    Args:
        shared: the old piece of each shared new one.
    """
    numbers, vectors = piece_vectors(tokenizer, lines)
    of_shared = np.flatnonzero(np.isin(numbers, [*shared]))
    of_wanted = np.flatnonzero(np.isin(numbers, [*wanted]))
    found: dict[int, dict[int, float]] = {}
    if not len(of_shared):
        return found
    olds = np.asarray([shared[number] for number in numbers[of_shared].tolist()])
    for begin in range(0, len(of_wanted), _BLOCK):
        block = of_wanted[begin : begin + _BLOCK]
        weights = sparsemax((vectors[block] @ vectors[of_shared].T).astype(np.float64))
        for number, row in zip(numbers[block].tolist(), weights, strict=True):
            mine = found[number] = {}
            for at in np.flatnonzero(row).tolist():  # signs that a word begins with, or not, are one old piece
                mine[int(olds[at])] = mine.get(int(olds[at]), 0.0) + float(row[at])
    return found
