"""Nearest neighbours between two sets of vectors, by cosine and CSLS, and whether they are translations; any device."""

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


def are_pairs(queries: Indices, candidates: Indices, found: Indices) -> NDArray[np.bool_]:
    """Whether each query and the candidate that it found are a pair of the test, by their texts: bool `[N]`.

    So a text that stands twice is never wrong because its copy was found.

    Args:
        queries: a number for each distinct text among the queries, `[N]`.
        candidates: the same of the candidates, `[N]`; candidate i translates query i.
        found: index of the candidate that each query found, `[N]`.
    """
    size = int(candidates.max(initial=0)) + 1
    return np.isin(queries * size + candidates[found], queries * size + candidates)


def find_translations(
    first: Vectors | Tensor,
    second: Vectors | Tensor,
    numbers: tuple[Indices, Indices],
    *,
    csls: bool = False,
    device: str = "cpu",
) -> NDArray[np.float64]:
    """Whether each pair's sentences find each other: the mean of both directions, 0, 0.5 or 1, `[N]`.

    Args:
        first, second: vectors of the sentences, `[N, D]`.
        numbers: a number for each distinct text of the first and of the second sentences, `[N]` each.
    """
    numbers_of_first, numbers_of_second = numbers

    def right(
        asked: Vectors | Tensor, others: Vectors | Tensor, queries: Indices, candidates: Indices
    ) -> NDArray[np.bool_]:
        found = nearest_csls(asked, others, asked, device=device) if csls else nearest_cosine(asked, others, device)
        return are_pairs(queries, candidates, found)

    forward = right(first, second, numbers_of_first, numbers_of_second)
    return (forward + right(second, first, numbers_of_second, numbers_of_first).astype(float)) / 2


def thin(count: int, most: int) -> list[int]:
    """At most `most` of `count` indices, evenly spaced."""
    return [*range(count)] if count <= most else np.linspace(0, count - 1, most).astype(int).tolist()


def _on_device(rows: Vectors | Tensor, device: str) -> Tensor:
    """Unit rows on the device; a tensor keeps its precision."""
    import torch  # here, because it costs whoever only lists tasks a second

    if isinstance(rows, torch.Tensor):
        return torch.nn.functional.normalize(rows, dim=-1).to(device)
    return torch.from_numpy(unit_rows(rows)).to(device)


def _by_block(rows: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    import torch

    return torch.cat([function(part) for part in rows.split(BLOCK_ROWS)])
