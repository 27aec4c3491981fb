"""The feed without Ray: the same batches in one process, made by a thread one request ahead."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor

from xalign_ray.config.derive import derive_batch
from xalign_ray.config.schema import RunConfig
from xalign_ray.data.batches import BatchReader, split_blocks
from xalign_ray.data.prepared import Prepared
from xalign_ray.text.collate import Columns
from xalign_ray.text.order import Request


def open_local(prepared: Prepared, config: RunConfig, first_step: int, rank: int) -> Generator[Columns, None, None]:
    """A rank's batches of the steps from `first_step` to the last."""
    reader = BatchReader(prepared, config)
    low, high = derive_batch(config).rows_of(rank)
    return split_blocks(_blocks(reader, reader.requests(first_step, rank)), high - low)


def _blocks(reader: BatchReader, requests: Iterator[Request]) -> Generator[tuple[Request, Columns], None, None]:
    blocks = reader.in_turn(requests)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="feed") as thread:
        ahead = thread.submit(next, blocks, None)
        while (block := ahead.result()) is not None:
            ahead = thread.submit(next, blocks, None)
            yield block
