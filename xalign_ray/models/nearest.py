"""Nearest neighbours between two sets of vectors, by cosine and by CSLS, in blocks of bounded memory, on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

BLOCK_ROWS = 1024
NEIGHBOURS = 10

Vectors = NDArray[np.float32]
Indices = NDArray[np.int64]


def unit_rows(vectors: Vectors) -> Vectors:
    """Rows scaled to length 1; a zero row stays zero. `[N, D]` to `[N, D]`."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)


def nearest_cosine(queries: Vectors | Tensor, candidates: Vectors | Tensor, device: str = "cpu") -> Indices:
    """Index `[N]` of the first candidate (`[C, D]`, C >= 1) with the highest cosine, for each query (`[N, D]`)."""
    left, right = (_on_device(rows, device) for rows in (queries, candidates))
    return _by_block(left, lambda block: (block @ right.T).argmax(dim=1)).cpu().numpy()


def nearest_csls(
    queries: Vectors | Tensor,
    candidates: Vectors | Tensor,
    sources: Vectors | Tensor,
    neighbours: int = NEIGHBOURS,
    device: str = "cpu",
) -> Indices:
    """Index `[N]` of the candidate with the highest CSLS, which takes from the cosine what hubs have with everything.

    CSLS(x, y) = 2 cos(x, y) - r_T(x) - r_S(y): r_T(x) is the mean cosine of x with its k nearest candidates, r_S(y)
    that of y with its k nearest sources (Conneau et al. 2018, section 2.3). r_T(x) moves no rank and is left out.

    Args:
        queries: `[N, D]`.
        candidates: `[C, D]`, C >= 1.
        sources: `[S, D]`, S >= 1: all words of the queries' language, also those that are not asked.
        neighbours: k, at most S of them are used.
        device: where to compute, as torch names it.
    """
    left, right, others = (_on_device(rows, device) for rows in (queries, candidates, sources))
    k = min(neighbours, len(sources))
    density = _by_block(right, lambda block: (block @ others.T).topk(k, dim=1, sorted=False).values.mean(dim=1))
    return _by_block(left, lambda block: (2 * (block @ right.T) - density).argmax(dim=1)).cpu().numpy()


def _on_device(rows: Vectors | Tensor, device: str) -> Tensor:
    """Unit rows on the device; a tensor keeps its precision."""
    import torch  # here, because it costs whoever only lists tasks a second

    if isinstance(rows, torch.Tensor):
        return torch.nn.functional.normalize(rows, dim=-1).to(device)
    return torch.from_numpy(unit_rows(rows)).to(device)


def _by_block(rows: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    import torch

    return torch.cat([function(part) for part in rows.split(BLOCK_ROWS)])
