"""The feed on Ray: one Ray Data streaming executor a job hands numbered blocks to the ranks, in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import astuple
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
import ray.data
from ray.data import ExecutionOptions, ExecutionResources
from ray.data.block import BlockAccessor

from xalign_ray.config.derive import BLOCK_BYTES
from xalign_ray.config.schema import RunConfig
from xalign_ray.feed.batches import BatchReader, group_requests, split_blocks
from xalign_ray.shards.order import Request
from xalign_ray.shards.prepared import Prepared
from xalign_ray.sources.stage import placement, set_data_context, wait_for_place
from xalign_ray.streams.collate import Columns

WINDOW = 2  # blocks a rank has asked for and not yet consumed
STRETCH = 1024  # blocks of one execution: a list that fits anywhere, however long the run
STORE_BYTES = 128 << 20  # blocks made ahead for a rank: the object store is not a place to keep a corpus
EXPIRE_S = 30  # how long a killed executor's claim on CPUs lives (Ray's default of 180 s starves the next attempt)

Broadcast = Callable[[Any], Any]
Asked = tuple[Request, Any]  # and the reference of its block


class BlockServer:
    """The actor that runs the executor. Blocks are numbered: a threaded actor does not keep the order of calls.

    The first request for blocks names the first step: the actor starts before a rank has looked for checkpoints.
    """

    def __init__(self, folder: str, config: str) -> None:
        self.folder, self.config = folder, config
        self.run = RunConfig.model_validate_json(config)
        self.workers = self.run.parallel.workers
        self.reader = BatchReader(Prepared.open(Path(folder)), self.run)
        self.made: Generator[Any, None, None] | None = None
        self.waiting: dict[int, Any] = {}
        self.count = 0
        self.lock = threading.Lock()

    def get(self, first_step: int, rank: int, number: int) -> list[Any]:
        """The reference of a rank's block, by its number from the first step on, which is every rank's."""
        wanted = number * self.workers + rank
        with self.lock:
            if self.made is None:
                ranks = [self.reader.requests(first_step, rank) for rank in range(self.workers)]
                self.made = self._blocks(request for turn in zip(*ranks, strict=True) for request in turn)
            while wanted not in self.waiting:
                self.waiting[self.count] = next(self.made)
                self.count += 1
            return [self.waiting.pop(wanted)]

    def _blocks(self, requests: Iterator[Request]) -> Generator[Any, None, None]:
        """One block a request, in order. Requests are planned in stretches: a run of years is not one list."""
        while stretch := [*islice(requests, STRETCH)]:
            made = 0
            for bundle in self._execute(stretch):
                made += len(bundle.block_refs)
                yield from bundle.block_refs
            assert made == len(stretch), "Ray Data has split or joined blocks; the numbering would be wrong"

    def _execute(self, requests: list[Request]) -> Iterator[Any]:
        set_data_context()
        groups, target_bytes = group_requests(requests, self.reader.row_bytes)
        items = [{"requests": [astuple(request) for request in group]} for group in groups]
        make_blocks: Any = partial(_make_blocks, folder=self.folder, config=self.config)
        blocks = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            make_blocks,
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=self.run.parallel.data_cpus or 1.0,
            **placement(self.run.parallel),
        )
        blocks.context.target_max_block_size = target_bytes
        blocks.context.execution_options = ExecutionOptions(
            preserve_order=True,
            resource_limits=ExecutionResources.for_limits(object_store_memory=STORE_BYTES * self.workers),
        )
        return iter(blocks.iter_internal_ref_bundles())


def _make_blocks(batch: pa.Table, folder: str, config: str) -> Iterator[Columns]:
    reader = _open_reader(folder, config)
    yield from (reader(Request(*fields)) for fields in batch["requests"][0].as_py())


@lru_cache(maxsize=1)
def _open_reader(folder: str, config: str) -> BatchReader:
    return BatchReader(Prepared.open(Path(folder)), RunConfig.model_validate_json(config))


class Feed:
    """A rank's batches of the steps from `first_step` to the last. Every rank of the job must open its own.

    The first blocks are made from now on, while the ranks set up what will take them; `close` ends the executor.
    """

    def __init__(
        self, prepared: Prepared, config: RunConfig, first_step: int, rank: int, broadcast: Broadcast, server: Any
    ) -> None:
        """Asks for the first blocks.

        Args:
            broadcast: gives every rank what rank 0 passed in (a broadcast of Ray Train's collective).
            server: what `start_server` gave, on rank 0.
        """
        self._own, server = server, broadcast(server)
        reader = BatchReader(prepared, config)
        requests = enumerate(reader.requests(first_step, rank))
        asked = ((request, server.get.remote(first_step, rank, number)) for number, request in requests)
        self._batches = split_blocks(_blocks(deque(islice(asked, WINDOW)), asked), reader.rows_of(rank))

    def __iter__(self) -> Iterator[Columns]:
        return self

    def __next__(self) -> Columns:
        return next(self._batches)

    def close(self) -> None:
        """Ends the executor that this rank has started, if it has."""
        if self._own is not None:
            ray.kill(self._own)


def start_server(prepared: Prepared, config: RunConfig) -> Any:
    """Starts the executor of a job; whoever has the last handle to it ends it.

    Raises:
        ConfigError: no node may run data tasks.
    """
    wait_for_place(config.parallel)
    return (
        ray.remote(BlockServer)
        .options(
            num_cpus=0,
            max_concurrency=2 * WINDOW * config.parallel.workers,
            runtime_env={"env_vars": {"RAY_DATA_AUTOSCALING_REQUEST_EXPIRE_TIME_S": str(EXPIRE_S)}},
            **placement(config.parallel),
        )
        .remote(str(prepared.folder), config.model_dump_json())
    )


def describe_feed(prepared: Prepared, config: RunConfig) -> dict[str, float]:
    """The fields of a start event on the feed, for each worker: steps of a full block, its size and of all ahead."""
    reader = BatchReader(prepared, config)
    steps, _ = reader.block_shape
    block = min(BLOCK_BYTES, steps * reader.rows_of(0) * reader.row_bytes)
    return {
        "block_steps": steps,
        "block_mib": round(block / (1 << 20), 1),
        "ahead_mib": round((STORE_BYTES + (WINDOW + 1) * block) / (1 << 20), 1),
    }


def _blocks(ahead: deque[Asked], more: Iterator[Asked]) -> Iterator[tuple[Request, Columns]]:
    """A rank's blocks in order; whenever one is taken, one more is requested."""
    for request in more:
        ahead.append(request)
        yield _fetch(*ahead.popleft())
    while ahead:
        yield _fetch(*ahead.popleft())


def _fetch(request: Request, reference: Any) -> tuple[Request, Columns]:
    (block,) = ray.get(reference)
    columns = BlockAccessor.for_block(ray.get(block)).to_numpy()
    assert isinstance(columns, dict), "a block of several columns"
    return request, columns
