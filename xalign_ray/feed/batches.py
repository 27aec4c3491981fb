"""A worker's rows of each global step, read from shards: what every feed runs, and the feed without Ray."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.derive import BLOCK_BYTES, block_shape, derive_batch
from xalign_ray.config.schema import RunConfig
from xalign_ray.shards.order import Places, Request
from xalign_ray.shards.prepared import Prepared
from xalign_ray.streams.collate import IGNORED, Columns
from xalign_ray.streams.prediction import no_rows, stream_columns

GROUP = 8  # requests of a data task: Ray Data looks for ended tasks every tenth of a second, and many short ones idle
FEW_BYTES = 4 * BLOCK_BYTES  # a rank's rows of a whole run: a second of its core, and five for data tasks to start


class BatchReader:
    """Reads the rows of a request and makes the columns of each row's stream. Cheap to make; holds no rows."""

    def __init__(self, prepared: Prepared, config: RunConfig) -> None:
        self.prepared, self.config = prepared, config
        self.order, self.sources = prepared.order(config), prepared.sources(config)
        self._context = prepared.context(config)
        # Every batch has the columns of all streams, whichever of them its rows happen to be of.
        self.columns = {
            name: values for stream in config.streams for name, values in no_rows(stream, self._context).items()
        }

    @property
    def row_bytes(self) -> int:
        """Of all columns."""
        return sum(values.itemsize * int(np.prod(values.shape[1:])) for values in self.columns.values())

    @property
    def block_shape(self) -> tuple[int, int]:
        """How a worker's rows are cut into blocks: steps of a block, and blocks of a step."""
        return block_shape(self.config, self.row_bytes)

    def rows_of(self, rank: int) -> int:
        """Rows of a rank in each step."""
        low, high = derive_batch(self.config).rows_of(rank)
        return high - low

    def requests(self, first_step: int, rank: int) -> Iterator[Request]:
        """A rank's work from a step to the last; every rank has as many requests, for the same steps."""
        low, high = derive_batch(self.config).rows_of(rank)
        return self.order.requests(first_step, self.config.train.max_steps, low, high, *self.block_shape)

    def __call__(self, request: Request) -> Columns:
        """The rows of a request in the order of (step, row)."""
        steps = range(request.first, request.last)
        positions = np.concatenate([self.order.positions(step, request.low, request.high) for step in steps])
        places = self.order.places(request)
        columns = {name: _blank(name, values, len(positions)) for name, values in self.columns.items()}
        pools = [pool for _, pool in self.sources]
        stream_of = np.array([stream for stream, _ in self.sources])[places.source]
        for number, stream in enumerate(self.config.streams):
            mine = np.flatnonzero(stream_of == number)
            if not len(mine):
                continue
            rows = self.prepared.read(pools, Places(places.source[mine], places.shard[mine], places.row[mine]))
            for name, values in stream_columns(stream, rows, positions[mine], self._context).items():
                columns[name][mine] = values
        return columns


def _blank(name: str, like: NDArray, rows: int) -> NDArray:
    return np.full((rows, *like.shape[1:]), IGNORED if name.endswith("labels") else 0, like.dtype)


def group_requests(requests: Sequence[Request], row_bytes: int) -> tuple[list[list[Request]], int]:
    """Requests in their order, grouped for data tasks that put out a block each.

    Returns:
        The groups, and a target size of blocks in bytes by which Ray Data puts out each request's rows as one block: it
        ends a block above the target, and splits one of 1.5 times the target. A group's blocks are between these; a
        smaller one is alone in its task and ends with it.
    """
    sizes = [(request.last - request.first) * (request.high - request.low) * row_bytes for request in requests]
    target = max(sizes) * 4 // 5
    groups: list[list[Request]] = []
    joins = False
    for request, size in zip(requests, sizes, strict=True):
        if joins and size > target and len(groups[-1]) < GROUP:
            groups[-1].append(request)
        else:
            groups.append([request])
        joins = size > target
    return groups, target


def split_blocks(blocks: Iterable[tuple[Request, Columns]], rows_per_step: int) -> Generator[Columns, None, None]:
    """The batches of steps, of blocks that are several steps or a part of one."""
    parts: list[Columns] = []
    for request, columns in blocks:
        rows = request.high - request.low
        if rows < rows_per_step:
            parts.append(columns)
            if sum(len(part["position"]) for part in parts) == rows_per_step:
                yield {name: np.concatenate([part[name] for part in parts]) for name in columns}
                parts = []
            continue
        for begin in range(0, len(columns["position"]), rows):
            yield {name: values[begin : begin + rows] for name, values in columns.items()}


def needs_few_rows(prepared: Prepared, config: RunConfig) -> bool:
    """Whether each rank makes its rows itself, under Ray too: a whole run's rows cost less than to start data tasks.

    A recipe that sets the resources of data tasks has data tasks.
    """
    if config.parallel.data_cpus or config.parallel.data_resource:
        return False
    reader = BatchReader(prepared, config)
    return config.train.max_steps * reader.rows_of(0) * reader.row_bytes <= FEW_BYTES


def open_local(prepared: Prepared, config: RunConfig, first_step: int, rank: int) -> Generator[Columns, None, None]:
    """A rank's batches of the steps from `first_step` to the last."""
    reader = BatchReader(prepared, config)
    return split_blocks(_blocks(reader, reader.requests(first_step, rank)), reader.rows_of(rank))


def _blocks(reader: BatchReader, requests: Iterator[Request]) -> Generator[tuple[Request, Columns], None, None]:
    blocks = ((request, reader(request)) for request in requests)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="feed") as thread:
        ahead = thread.submit(next, blocks, None)
        while (block := ahead.result()) is not None:
            ahead = thread.submit(next, blocks, None)
            yield block
