"""The order of training: an endless sequence of positions, each a row of a pool; pure in (manifest, seed).

How often each language is drawn stands at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xalign_ray.shards.counter_random import SPREAD, random_bits, row_keys, uniform

Index = NDArray[np.int64]

ROW_GROUP = 256  # rows that are read together
WINDOW_SHARDS = 4  # shards of a pool that are read in turn, row group by row group: few files are open at once
PARTITION_ROWS = ROW_GROUP  # at least, of a chunk: a rank whose share is less reads what others use
CHUNK_STEPS = 32  # steps whose rows are planned together: more are longer reads, fewer are closer to a schedule
TABLED = 1024  # chunks whose shares are drawn together
MANY_ROWS = 128 * ROW_GROUP  # of a stream in a chunk: with fewer, its sources are never drawn by whole row groups

OFFSETS, SHARDS, GROUPS, TURNS = 1, 2, 3, 4  # purposes of generators, a part of their keys


@dataclass(frozen=True, eq=False)
class Pool:
    """Rows that are drawn together: one language's, or one pair's. shard_rows [shards]: rows of each shard."""

    shard_rows: Index

    @cached_property
    def rows(self) -> int:
        """Of all shards."""
        return int(self.shard_rows.sum())


@dataclass(frozen=True, eq=False)
class StreamPools:
    """The pools of a stream.

    weight: of its rows among all streams' rows. shares(step) [pools]: of each pool among the stream's rows.
    """

    weight: float
    pools: Sequence[Pool]
    shares: Callable[[int], NDArray[np.float64]]


@dataclass(frozen=True)
class Request:
    """A piece of work of one worker: of steps [first, last) the rows [low, high)."""

    first: int
    last: int
    low: int
    high: int


@dataclass(frozen=True)
class Places:
    """Where rows lie: for each, the source it is drawn for, the shard of that source's pool, and the row in it."""

    source: Index
    shard: Index
    row: Index


class Order:
    """Step s owns positions [s * G, (s + 1) * G), G the global batch, whatever the number of workers.

    A source is a pool of a stream; sources are numbered stream by stream. Positions are planned in chunks of K steps:

    - A chunk has the same number of rows of each stream, and of its sources as many as their shares ask for, by
      systematic sampling: the share rounded down or up at random (sampled_before: how many rows a source gave before).
      Of a stream that has more sources than row groups in a chunk (at least MANY_ROWS, shares that do not change), most
      sources would give a part of a row group, and it would be read for each part. So its sources give whole row groups
      in turn, as often as their shares ask for: most are in some chunks and not in others.
    - The G rows of a step are cut into partitions, as ranks cut them. Each has every stream in proportion, and of a
      stream a stretch of the chunk's rows, source by source: so a partition reads few sources, and all of
      them together have every source in each step.
    - The rows of a source in a partition are spread evenly over the chunk's steps, so some of its steps are a stretch
      too.
    - A source is read in the order of its epochs: shards permuted, row groups permuted within windows of shards, rows
      as they lie in a group, which prepare shuffled. Every row of a pool is seen once an epoch.

    So any request is few contiguous reads, and where a position points follows from integers alone. (The idea of a
    canonical order is MosaicML Streaming's.)
    """

    def __init__(self, streams: Sequence[StreamPools], seed: int, global_rows: int, chunk_steps: int) -> None:
        self.streams, self.seed = list(streams), seed
        self.global_rows, self.chunk_steps = global_rows, chunk_steps
        self.pools = [pool for stream in streams for pool in stream.pools]
        self._source = np.cumsum([0] + [len(stream.pools) for stream in streams])  # each stream's first
        chunk_rows = global_rows * chunk_steps
        count = min(global_rows, max(1, chunk_rows // PARTITION_ROWS))
        self.partitions: Index = np.arange(count + 1) * global_rows // count  # where each begins and ends in a step
        self._stream_rows = apportion([stream.weight for stream in streams], chunk_rows)
        self._dealt = _deal(self._stream_rows, self.partitions * chunk_steps)
        self._sampled = [np.zeros(len(self.pools), np.int64)]  # before each table
        self._table: tuple[int, Index, Index] | None = None
        self._layouts: dict[tuple[int, int, int], tuple[Index, Index]] = {}

    def positions(self, step: int, low: int, high: int) -> Index:
        """The positions of rows [low, high) of a step."""
        return step * self.global_rows + np.arange(low, high, dtype=np.int64)

    def requests(
        self, first_step: int, last_step: int, low: int, high: int, steps: int, parts: int = 1
    ) -> Iterator[Request]:
        """The work of the rows [low, high) from one step to another.

        Where they may have a chunk or more, requests end with one: rows read for a part of it would be read again for
        the rest.

        Args:
            steps: of a request at most; the first has one, the next two, then four: training waits for little.
            parts: requests that a step is cut into, where `steps` is 1.
        """
        assert steps == 1 or parts == 1
        ahead = 1
        cuts = low + (high - low) * np.arange(parts + 1) // parts
        while first_step < last_step:
            last = min(last_step, first_step + min(ahead, steps))
            part = last % self.chunk_steps
            if steps >= self.chunk_steps and last < last_step and last - first_step > part:
                last -= part
            for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
                yield Request(first_step, last, begin, end)
            first_step, ahead = last, 2 * ahead

    def shares(self, step: int) -> NDArray[np.float64]:
        """Of each source among all rows of the chunk that a step is in; they sum to 1."""
        first = step - step % self.chunk_steps
        total = sum(stream.weight for stream in self.streams)
        return np.concatenate([stream.weight / total * stream.shares(first) for stream in self.streams])

    def sampled_before(self, chunk: int) -> Index:
        """Rows drawn from each source before a chunk."""
        number, at = divmod(chunk, TABLED)
        return self._tables(number)[1][at]

    def places(self, request: Request) -> Places:
        """Where the rows of a request lie, in the order of (step, row)."""
        first = int(np.searchsorted(self.partitions, request.low, side="right")) - 1
        last = int(np.searchsorted(self.partitions, request.high, side="left"))
        rows = slice(request.low - self.partitions[first], request.high - self.partitions[first])
        parts = []
        for chunk in range(request.first // self.chunk_steps, -(-request.last // self.chunk_steps)):
            begin = chunk * self.chunk_steps
            steps = slice(max(request.first - begin, 0), request.last - begin)
            parts.append([values[steps, rows].ravel() for values in self._layout(chunk, first, last)])
        source, index = map(np.concatenate, zip(*parts, strict=True))
        return self._locate(source, index)

    def _layout(self, chunk: int, first: int, last: int) -> tuple[Index, Index]:
        """For some partitions of a chunk, source and row of the source as its epochs count them: both [steps, rows]."""
        if (chunk, first, last) not in self._layouts:
            while len(self._layouts) > 3:  # requests of several ranks, or of several parts of a step, come in turn
                self._layouts.pop(next(iter(self._layouts)))
            self._layouts[chunk, first, last] = self._lay_out(chunk, first, last)
        return self._layouts[chunk, first, last]

    def _lay_out(self, chunk: int, first: int, last: int) -> tuple[Index, Index]:
        partition, source, index = map(np.concatenate, zip(*self._rows_of_partitions(chunk, first, last), strict=True))
        run = partition * len(self.pools) + source
        begins = np.flatnonzero(np.diff(run, prepend=-1))
        lengths = np.diff(begins, append=len(run))
        key = row_keys(self.seed, np.array([chunk]))
        offset = uniform(random_bits(key, SPREAD, run[begins]))
        within = np.arange(len(run)) - np.repeat(begins, lengths)
        fraction = (within + np.repeat(offset, lengths)) / np.repeat(lengths, lengths)
        spread = np.lexsort((fraction, partition))
        partition_rows = np.diff(self.partitions[first : last + 1])
        sizes = partition_rows * self.chunk_steps
        number = np.arange(len(run)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        step, row = np.divmod(number, np.repeat(partition_rows, sizes))
        row += np.repeat(self.partitions[first:last] - self.partitions[first], sizes)
        shape = (self.chunk_steps, int(self.partitions[last] - self.partitions[first]))
        layout = np.empty(shape, np.int64), np.empty(shape, np.int64)
        layout[0][step, row], layout[1][step, row] = source[spread], index[spread]
        return layout

    def _rows_of_partitions(self, chunk: int, first: int, last: int) -> Iterator[tuple[Index, Index, Index]]:
        """For each stream's rows in partitions [first, last) of a chunk: partition, source, and row of the source."""
        number, at = divmod(chunk, TABLED)
        begins, sampled = (table[at] for table in self._tables(number))
        for stream, dealt in enumerate(self._dealt):
            row = np.arange(dealt[first], dealt[last])
            partition = np.searchsorted(dealt, row, side="right") - 1
            low, high = self._source[stream : stream + 2]
            source = low + np.searchsorted(begins[low:high], row, side="right") - 1
            yield partition, source, sampled[source] + row - begins[source]

    def _tables(self, number: int) -> tuple[Index, Index]:
        """Of TABLED chunks: where each source's rows begin within its stream, and how many it gave before."""
        if self._table is None or self._table[0] != number:
            while len(self._sampled) <= number:
                self._sampled.append(self._sampled[-1] + self._drawn_by(len(self._sampled) - 1))
            begins, counts = self._sample(number)
            self._table = number, begins, self._sampled[number] + np.cumsum(counts, axis=0) - counts
        return self._table[1:]

    def _drawn_by(self, number: int) -> Index:
        """Rows that TABLED chunks draw from each source."""
        return np.concatenate(
            [
                _systematic(rows * TABLED, shares[0], offsets[0])
                if self._gives_groups(rows, shares)
                else _systematic(rows, shares, offsets[:, None]).sum(axis=0)
                for rows, shares, offsets in self._streams_of(number)
            ]
        )

    def _sample(self, number: int) -> tuple[Index, Index]:
        """Where sources begin in TABLED chunks, and their rows: both [chunks, sources]."""
        drawn_rows = []
        for stream, (rows, shares, offsets) in enumerate(self._streams_of(number)):
            if self._gives_groups(rows, shares):
                sources = slice(*self._source[stream : stream + 2])
                sizes = np.minimum([pool.rows for pool in self.pools[sources]], ROW_GROUP)
                drawn = _systematic(rows * TABLED, shares[0], offsets[0])
                generator = np.random.default_rng([self.seed, TURNS, number, stream, 0])
                drawn_rows.append(_in_turns(drawn, self._sampled[number][sources], sizes, rows, generator))
            else:
                drawn_rows.append(_systematic(rows, shares, offsets[:, None]))
        begins = [np.cumsum(counts, axis=1) - counts for counts in drawn_rows]
        return np.concatenate(begins, axis=1), np.concatenate(drawn_rows, axis=1)

    def _streams_of(self, number: int) -> Iterator[tuple[int, NDArray[np.float64], NDArray[np.float64]]]:
        """Each stream's rows in a chunk, its shares in TABLED chunks ([chunks, sources], or [1, sources] where they do
        not change), and offsets of systematic sampling [chunks]."""
        offsets = np.random.default_rng([self.seed, OFFSETS, number]).random((TABLED, len(self.streams)))
        steps = (number * TABLED + np.arange(TABLED)) * self.chunk_steps
        for stream, (of, rows) in enumerate(zip(self.streams, self._stream_rows, strict=True)):
            shares = [of.shares(step) for step in steps.tolist()]
            constant = all(share is shares[0] for share in shares)
            yield rows, np.stack(shares[:1] if constant else shares), offsets[:, stream]

    @staticmethod
    def _gives_groups(rows: int, shares: NDArray[np.float64]) -> bool:
        """Whether the sources of a stream give whole row groups in turn."""
        return rows >= MANY_ROWS and len(shares) == 1 and int(np.count_nonzero(shares[0])) * ROW_GROUP > rows

    def _locate(self, source: Index, index: Index) -> Places:
        shard, row = np.empty_like(source), np.empty_like(source)
        for number in np.unique(source).tolist():
            of_source = np.flatnonzero(source == number)
            pool = self.pools[number]
            epochs, at = np.divmod(index[of_source], pool.rows)
            for epoch in np.unique(epochs).tolist():
                in_epoch = np.flatnonzero(epochs == epoch)
                mine, key = of_source[in_epoch], (self.seed, number, epoch)
                shard[mine], row[mine] = _locate_in_epoch(pool, key, at[in_epoch])
        return Places(source, shard, row)


def _systematic(rows: int, shares: NDArray[np.float64], offset: Any) -> Index:
    """Each source's share of `rows`, rounded down or up; shares [..., sources]."""
    ends = np.cumsum(shares, axis=-1)
    ends[ends == ends[..., -1:]] = 1.0  # sources without a share after the last one end there too
    after = np.ceil(rows * ends - offset).astype(np.int64)
    return np.diff(after, axis=-1, prepend=0)


def _in_turns(drawn: Index, before: Index, sizes: Index, rows: int, generator: np.random.Generator) -> Index:
    """How many rows each chunk of TABLED has of each source, if sources give row groups in turn: [chunks, sources].

    A source's rows of these chunks are cut where its row groups end. The pieces of all sources stand in one line, each
    source's evenly spread from a random start, and the line is cut into chunks.

    Args:
        drawn, before: rows of each source in these chunks, and before them.
        sizes: of its row groups.
        rows: of each chunk.
    """
    first = before % sizes
    pieces = np.where(drawn > 0, -(-(first + drawn) // sizes), 0)
    source = np.repeat(np.arange(len(drawn)), pieces)
    number = np.arange(len(source)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    ends = np.minimum((number + 1) * sizes[source], (first + drawn)[source])
    length = ends - np.maximum(number * sizes[source], first[source])
    turn = (number + generator.random(len(drawn))[source]) / pieces[source]
    line = np.argsort(turn, kind="stable")
    source, length = source[line], length[line]
    end = np.cumsum(length)
    chunk = (end - length) // rows
    here = np.minimum(length, (chunk + 1) * rows - (end - length))  # a piece may go on in the next chunk
    counts = np.zeros((TABLED + 1, len(drawn)), np.int64)
    np.add.at(counts, (chunk, source), here)
    np.add.at(counts, (chunk + 1, source), length - here)
    return counts[:TABLED]


def apportion(weights: Sequence[float], total: int) -> list[int]:
    """Whole numbers in proportion to weights that sum to a total, by largest remainder."""
    exact = np.asarray(weights, np.float64) / sum(weights) * total
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    return counts.tolist()


def _deal(stream_rows: Sequence[int], ends: Index) -> list[Index]:
    """For each stream, its rows before each of `ends` where all streams' rows stand in one line, evenly mixed."""
    fraction = np.concatenate([(np.arange(rows) + 0.5) / rows for rows in stream_rows])
    stream = np.repeat(np.arange(len(stream_rows)), stream_rows)[np.argsort(fraction, kind="stable")]
    return [np.searchsorted(np.flatnonzero(stream == number), ends) for number in range(len(stream_rows))]


def _locate_in_epoch(pool: Pool, key: tuple[int, int, int], at: Index) -> tuple[Index, Index]:
    """Shard, and row in it, of rows counted from the begin of an epoch; key: seed, source, epoch."""
    shards, ends = _epoch(pool, *key)
    shard, row = np.empty_like(at), np.empty_like(at)
    windows = np.searchsorted(ends, at, side="right")
    for number in np.unique(windows).tolist():
        mine = np.flatnonzero(windows == number)
        chosen = shards[number * WINDOW_SHARDS : (number + 1) * WINDOW_SHARDS]
        of_group, first, group_ends = _window(pool, *key, number, tuple(chosen.tolist()))
        within = at[mine] - (ends[number - 1] if number else 0)
        group = np.searchsorted(group_ends, within, side="right")
        before = np.where(group > 0, group_ends[group - 1], 0)
        shard[mine], row[mine] = of_group[group], first[group] + within - before
    return shard, row


@lru_cache(maxsize=4096)  # two epochs of two thousand sources
def _epoch(pool: Pool, seed: int, source: int, epoch: int) -> tuple[Index, Index]:
    """A source's shards in the order of an epoch, and the epoch's rows up to the end of each window of them."""
    shards = np.random.default_rng([seed, SHARDS, source, epoch]).permutation(len(pool.shard_rows))
    ends = np.cumsum(pool.shard_rows[shards])
    return shards, np.append(ends[WINDOW_SHARDS - 1 : -1 : WINDOW_SHARDS], ends[-1])


@lru_cache(maxsize=4096)
def _window(
    pool: Pool, seed: int, source: int, epoch: int, number: int, shards: tuple[int, ...]
) -> tuple[Index, Index, Index]:
    """The row groups of a window in the order of an epoch: shard and first row of each, and the rows up to its end."""
    sizes = pool.shard_rows[list(shards)]
    counts = -(-sizes // ROW_GROUP)
    shard = np.repeat(np.array(shards, np.int64), counts)
    first = (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)) * ROW_GROUP
    rows = np.minimum(np.repeat(sizes, counts) - first, ROW_GROUP)
    order = np.random.default_rng([seed, GROUPS, source, epoch, number]).permutation(len(shard))
    return shard[order], first[order], np.cumsum(rows[order])


# How often each language of a stream is drawn.
#
# Formulas, and how the papers were read: docs/explanation/methods.md, Sampling of languages.


def language_shares(sizes: Mapping[str, float], exponent: float) -> dict[str, float]:
    """q_l = p_l^exponent / sum of all, with p_l = size_l / sum of sizes. Exponent 1 is by size, 0 is uniform."""
    total = sum(sizes.values())
    raised = {name: (size / total) ** exponent for name, size in sizes.items()}
    norm = sum(raised.values())
    return {name: value / norm for name, value in raised.items()}
