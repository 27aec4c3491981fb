"""Nearest neighbours of vectors by cosine, CSLS and ratio margin, in blocks of bounded memory; any device.

Ratio margin: Artetxe and Schwenk 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


BLOCK_ROWS = 1024
ROWS, COLUMNS = 2048, 8192  # of a block of cosines: 64 MiB
NEIGHBOURS = 10  # of CSLS
MARGIN_NEIGHBOURS = 4  # of Artetxe and Schwenk

Vectors = NDArray[np.float32]
Indices = NDArray[np.int64]
Scores = NDArray[np.float64]


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
        neighbours = (
            nearest_csls(asked, others, asked, device=device) if csls else nearest_cosine(asked, others, device)
        )
        return are_pairs(queries, candidates, neighbours)

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


@dataclass(frozen=True)
class Neighbours:
    """The k nearest of each vector on the other side, the nearest first: cosines and places, [N, k] each."""

    cosines: NDArray[np.float32]
    places: Indices


@dataclass(frozen=True, order=True)
class Mined:
    """A pair: its score, and the numbers of its two sentences."""

    score: float
    first: int
    second: int


def nearest_both_ways(
    first: Vectors, second: Vectors, k: int = MARGIN_NEIGHBOURS, device: str = "cpu"
) -> tuple[Neighbours, Neighbours]:
    """The nearest of each vector of either side, from one product of all with all, a block at a time.

    Args:
        first, second: vectors of length 1, [N, D] and [M, D], perhaps memory-mapped: read a block at a time.
        k: neighbours; at most M of the first side's and N of the second's.
    """
    import torch

    best_first = _Best(len(first), min(k, len(second)))
    best_second = _Best(len(second), min(k, len(first)))
    with torch.inference_mode():
        for rows, left in _blocks(first, ROWS, device):
            for columns, right in _blocks(second, COLUMNS, device):
                cosines = left @ right.T
                best_first.take(rows, cosines, columns.start)
                best_second.take(columns, cosines.T.contiguous(), rows.start)
    return best_first.found(), best_second.found()


EXACT_UP_TO = 100_000  # vectors of a side that are compared with all others where faiss is installed
LISTS, PROBED = 4, 64  # cells of faiss's index, in roots of its size, and how many of them a search reads


def search_both_ways(
    first: Vectors, second: Vectors, k: int = MARGIN_NEIGHBOURS, device: str = "cpu", exact_up_to: int = EXACT_UP_TO
) -> tuple[Neighbours, Neighbours]:
    """As `nearest_both_ways`; above `exact_up_to` vectors of a side by faiss, an index in memory, if it is installed.

    The index finds nearly all of the nearest (inverted file, Jegou et al. 2011): `tests/unit/models/test_margin.py`.
    """
    if max(len(first), len(second)) <= exact_up_to or find_spec("faiss") is None:
        return nearest_both_ways(first, second, k, device)
    return _search(first, second, k), _search(second, first, k)


def _search(queries: Vectors, others: Vectors, k: int) -> Neighbours:
    import faiss

    lists = int(LISTS * len(others) ** 0.5)
    index: Any = faiss.index_factory(others.shape[1], f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
    index.nprobe = PROBED
    index.train(np.ascontiguousarray(others[:: max(1, len(others) // (PROBED * lists))]))
    for _, rows in _host_blocks(others):
        index.add(rows)
    searched = [index.search(rows, min(k, len(others))) for _, rows in _host_blocks(queries)]
    cosines, places = (np.concatenate(parts) for parts in zip(*searched, strict=True))
    assert places.min() >= 0, "the cells that are read hold k vectors"
    return Neighbours(cosines, places)


class _Best:
    """The best so far of each of N vectors, on the host."""

    def __init__(self, count: int, k: int) -> None:
        import torch

        self._k = k
        self._cosines = torch.full((count, k), -torch.inf)
        self._places = torch.zeros((count, k), dtype=torch.int64)

    def take(self, mine: slice, cosines: Tensor, first_other: int) -> None:
        """Cosines of some of the vectors with others, which are numbered from `first_other` on."""
        import torch

        values, places = cosines.topk(min(self._k, cosines.shape[1]), dim=1)
        values = torch.cat([self._cosines[mine], values.cpu()], dim=1)  # the earlier first: ties keep the lower place
        places = torch.cat([self._places[mine], places.cpu() + first_other], dim=1)
        order = values.sort(dim=1, descending=True, stable=True).indices[:, : self._k]
        self._cosines[mine], self._places[mine] = values.gather(1, order), places.gather(1, order)

    def found(self) -> Neighbours:
        """As arrays."""
        return Neighbours(self._cosines.numpy(), self._places.numpy())


def _blocks(vectors: Vectors, size: int, device: str) -> Iterator[tuple[slice, Tensor]]:
    import torch

    for places, part in _host_blocks(vectors, size):
        yield places, torch.from_numpy(part).to(device)


def _host_blocks(vectors: Vectors, size: int = COLUMNS) -> Iterator[tuple[slice, Vectors]]:
    """A copy of some rows at a time, which may be memory-mapped."""
    for begin in range(0, len(vectors), size):
        part = np.array(vectors[begin : begin + size], dtype=np.float32)
        yield slice(begin, begin + len(part)), part


def ratio_margins(first: Neighbours, second: Neighbours) -> tuple[Scores, Scores]:
    """The score of each vector with each of its neighbours, of the first side and of the second: [N, k] and [M, k].

    The score of x and y is cos(x, y) over the mean of two means: the cosines of x with its k nearest, and of y with
    its own.
    """
    mean_first, mean_second = (side.cosines.astype(np.float64).mean(axis=1) for side in (first, second))
    forth = first.cosines / ((mean_first[:, None] + mean_second[first.places]) / 2)
    back = second.cosines / ((mean_second[:, None] + mean_first[second.places]) / 2)
    return forth, back


def best_by_margin(first: Neighbours, second: Neighbours) -> list[tuple[Indices, Scores]]:
    """The neighbour of the highest score of each vector and that score, of the first side and of the second."""
    best = []
    for side, scores in zip((first, second), ratio_margins(first, second), strict=True):
        at = np.arange(len(scores)), scores.argmax(axis=1)
        best.append((side.places[at], scores[at]))
    return best


def mine_pairs(first: Neighbours, second: Neighbours) -> list[Mined]:
    """Pairs by ratio margin, the best first, each sentence in one pair at most.

    Candidates are the neighbour of the highest score of each sentence, of both sides; of those the best are
    taken in turn (the method `max` of LASER and XTREME).
    """
    if not len(first.cosines) or not len(second.cosines):
        return []
    (forth, of_first), (back, of_second) = best_by_margin(first, second)
    left = np.concatenate([np.arange(len(forth)), back])
    right = np.concatenate([forth, np.arange(len(back))])
    scores = np.concatenate([of_first, of_second])
    free_left, free_right = np.ones(len(forth), bool), np.ones(len(back), bool)
    mined = []
    for rank in np.argsort(-scores, kind="stable").tolist():
        at_left, other = left[rank], right[rank]
        if free_left[at_left] and free_right[other]:
            free_left[at_left] = free_right[other] = False
            mined.append(Mined(float(scores[rank]), int(at_left), int(other)))
    return mined


NEGATIVES_AMONG = 16  # nearest neighbours of a sentence; the first may be its translation


def mined_negatives(
    first: Vectors, second: Vectors, of_first: Indices, of_second: Indices, device: str = "cpu"
) -> tuple[Indices, Indices]:
    """The pair whose other sentence is the hardest for each sentence of a pair, of the first and second, [N] each.

    That is the one of the highest ratio margin among its nearest that is in no pair with it, and whose margin is below
    the pair's own: a sentence that is nearer than the translation may be another translation. -1 where there is none.

    Args:
        first, second: of length 1, a vector of each distinct text, [A, D] and [B, D].
        of_first, of_second: the texts of each pair, [N].
    """
    neighbours = nearest_both_ways(first, second, NEGATIVES_AMONG, device)
    means = [side.cosines.astype(np.float64).mean(axis=1) for side in neighbours]
    cosines = np.einsum("nd,nd->n", first[of_first], second[of_second], dtype=np.float64)
    translation_margin = cosines / ((means[0][of_first] + means[1][of_second]) / 2)
    negatives = []
    for side, (asked, others) in enumerate(((of_first, of_second), (of_second, of_first))):
        places, margins = neighbours[side].places[asked], ratio_margins(*neighbours)[side][asked]
        size = len((second, first)[side])
        is_translation = np.isin(asked[:, None] * size + places, asked * size + others)
        margins = np.where(is_translation | (margins >= translation_margin[:, None]), -np.inf, margins)
        best, rows = margins.argmax(axis=1), np.arange(len(asked))
        pair_of = np.zeros(size, np.int64)
        pair_of[others[::-1]] = rows[::-1]  # the first pair of each text
        negatives.append(np.where(np.isneginf(margins[rows, best]), -1, pair_of[places[rows, best]]))
    return negatives[0], negatives[1]


@dataclass(frozen=True)
class Threshold:
    """The least score of a pair that is kept, and what that gives on the dev pairs."""

    score: float
    precision: float
    recall: float
    f1: float


def best_threshold(mined: Sequence[Mined], gold: Collection[tuple[int, int]]) -> Threshold | None:
    """The threshold of the highest F1, halfway between two scores; None if no mined pair is of the gold ones.

    Args:
        mined: the best first; precision is of those that have a sentence of the gold pairs.
        gold: numbers of the sentences of the dev pairs.
    """
    gold = set(gold)
    firsts, seconds = ({pair[side] for pair in gold} for side in (0, 1))
    judged = [pair for pair in mined if pair.first in firsts or pair.second in seconds]
    best, right = None, 0
    for number, pair in enumerate(judged, 1):
        right += (pair.first, pair.second) in gold
        precision, recall = right / number, right / len(gold)
        f1 = 2 * precision * recall / (precision + recall) if right else 0.0
        if right and (best is None or f1 > best.f1):
            following = judged[number].score if number < len(judged) else pair.score
            best = Threshold((pair.score + following) / 2, precision, recall, f1)
    return best
