"""The order of training: an endless sequence of positions, each a row of a pool; pure in (manifest, seed)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

COUNTS, SHUFFLE, EPOCH, PARTITIONS = 1, 2, 3, 4  # what a generator is for: part of its key


@dataclass(frozen=True)
class Pool:
    """Rows that are drawn together: the row groups of one language's, or one pair's, shards.

    group_rows: rows of each row group, in the order of the manifest.
    """

    group_rows: tuple[int, ...]

    @cached_property
    def rows(self) -> int:
        """Of all row groups; a corpus of a terabyte has millions, so they are added up once."""
        return sum(self.group_rows)


@dataclass(frozen=True)
class Request:
    """A contiguous piece of work of one worker: steps [first, last) of one chunk, rows [low, high) of each."""

    chunk: int
    first: int
    last: int
    low: int
    high: int


@dataclass(frozen=True)
class Places:
    """Where rows lie: for each, the source it is drawn for, the row group of that source's pool, and the row in it."""

    source: NDArray[np.int64]
    group: NDArray[np.int64]
    row: NDArray[np.int64]


class Order:
    """Step s owns positions [s * G, (s + 1) * G), G the global batch, whatever the number of workers.

    Positions are drawn in chunks of K steps. The number of a chunk's rows from each source is multinomial in the
    sources' shares, and falls to its partitions (G / partitions rows of each of its steps) at random; each source is
    read in the order of its epochs (row groups permuted, rows as they lie in a group, which prepare shuffled); a
    partition's rows are then shuffled over its positions. So a worker's rows are one contiguous read of each source,
    every row of a pool is seen once an epoch, and where a position points follows from integers alone. (The idea of a
    canonical order is MosaicML Streaming's.)
    """

    def __init__(
        self,
        pools: Sequence[Pool],
        shares: Sequence[float] | Callable[[int], Sequence[float]],
        seed: int,
        global_rows: int,
        partitions: int,
        chunk_steps: int,
    ) -> None:
        """Draws from `pools` in `shares`, or in those which a function gives for the first step of a chunk."""
        assert global_rows % partitions == 0
        self.pools, self.seed = list(pools), seed
        self._shares_at = shares if callable(shares) else lambda _: shares
        assert len(pools) == len(self._shares_at(0))
        self.global_rows, self.partitions, self.chunk_steps = global_rows, partitions, chunk_steps
        self._before = np.zeros((1, len(pools)), np.int64)
        self._epochs: dict[tuple[int, int], tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def positions(self, step: int, low: int, high: int) -> NDArray[np.int64]:
        """The positions of rows [low, high) of a step."""
        return step * self.global_rows + np.arange(low, high, dtype=np.int64)

    def requests(self, first_step: int, last_step: int, low: int, high: int) -> Iterator[Request]:
        """The work of the rows [low, high) from one step to another, one request a chunk."""
        while first_step < last_step:
            chunk = first_step // self.chunk_steps
            last = min((chunk + 1) * self.chunk_steps, last_step)
            yield Request(chunk, first_step, last, low, high)
            first_step = last

    def sampled_before(self, chunk: int) -> NDArray[np.int64]:
        """Rows drawn from each source before a chunk."""
        while len(self._before) <= chunk:
            known = len(self._before)
            more = [self._totals(c) for c in range(known - 1, max(chunk, 2 * known))]
            self._before = np.concatenate((self._before, self._before[-1] + np.cumsum(more, axis=0)))
        return self._before[chunk]

    def places(self, request: Request) -> Places:
        """Where the rows of a request lie, in the order of (step, row)."""
        width = self.global_rows // self.partitions  # its rows of a step
        steps = slice(request.first - request.chunk * self.chunk_steps, request.last - request.chunk * self.chunk_steps)
        counts = self._counts(request.chunk)
        begins = self.sampled_before(request.chunk) + np.cumsum(counts, axis=0) - counts
        shape = (request.last - request.first, request.high - request.low)
        source, index = np.empty(shape, np.int64), np.empty(shape, np.int64)
        for partition in range(request.low // width, -(-request.high // width)):
            shuffle = np.random.default_rng([self.seed, SHUFFLE, request.chunk, partition]).permutation(
                width * self.chunk_steps
            )
            low, high = max(request.low, partition * width), min(request.high, (partition + 1) * width)
            mine = shuffle.reshape(self.chunk_steps, width)[steps, low - partition * width : high - partition * width]
            partition_source = np.repeat(np.arange(len(self.pools)), counts[partition])
            within = np.arange(len(partition_source)) - np.repeat(
                np.cumsum(counts[partition]) - counts[partition], counts[partition]
            )
            source[:, low - request.low : high - request.low] = partition_source[mine]
            index[:, low - request.low : high - request.low] = (begins[partition][partition_source] + within)[mine]
        return self._locate(source.ravel(), index.ravel())

    def _totals(self, chunk: int) -> NDArray[np.int64]:
        """Rows of each source in a chunk: [sources]. Cheap, as a resume adds up those of all chunks before."""
        rows = self.global_rows * self.chunk_steps
        shares = np.asarray(self._shares_at(chunk * self.chunk_steps), np.float64)
        return np.random.default_rng([self.seed, COUNTS, chunk]).multinomial(rows, shares)

    def _counts(self, chunk: int) -> NDArray[np.int64]:
        """Rows of each source in each partition of a chunk: [partitions, sources]."""
        sources = np.repeat(np.arange(len(self.pools)), self._totals(chunk))
        dealt = np.random.default_rng([self.seed, PARTITIONS, chunk]).permutation(sources).reshape(self.partitions, -1)
        return np.stack([np.bincount(partition, minlength=len(self.pools)) for partition in dealt])

    def _locate(self, source: NDArray[np.int64], index: NDArray[np.int64]) -> Places:
        group, row = np.empty_like(source), np.empty_like(source)
        for number, pool in enumerate(self.pools):
            of_source = np.flatnonzero(source == number)
            epoch, at = np.divmod(index[of_source], pool.rows)
            for e in np.unique(epoch):
                mine = of_source[epoch == e]
                permutation, ends = self._epoch(number, int(e))
                place = np.searchsorted(ends, at[epoch == e], side="right")
                group[mine] = permutation[place]
                row[mine] = at[epoch == e] - np.where(place > 0, ends[place - 1], 0)
        return Places(source, group, row)

    def _epoch(self, source: int, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A source's row groups in the order of an epoch, and where each ends; the last two epochs are kept."""
        if (source, epoch) not in self._epochs:
            sizes = np.asarray(self.pools[source].group_rows, np.int64)
            permutation = np.random.default_rng([self.seed, EPOCH, source, epoch]).permutation(len(sizes))
            self._epochs = {
                key: value for key, value in self._epochs.items() if key[0] != source or key[1] == epoch - 1
            }
            self._epochs[source, epoch] = (permutation, np.cumsum(sizes[permutation]))
        return self._epochs[source, epoch]
