"""The feed without Ray: the same batches in one process, made by a thread one request ahead."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor

from xalign_ray.config.derive import derive_batch
from xalign_ray.config.schema import RunConfig
from xalign_ray.data.batches import BatchReader, split_steps
from xalign_ray.data.prepared import Prepared
from xalign_ray.text.collate import Columns


def open_local(prepared: Prepared, config: RunConfig, first_step: int, rank: int) -> Generator[Columns, None, None]:
    """A rank's batches of the steps from `first_step` to the last."""
    low, high = derive_batch(config).rows_of(rank)
    reader = BatchReader(prepared, config)
    requests = reader.order.requests(first_step, config.train.max_steps, low, high)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="feed") as thread:

        def ask() -> Future[Columns] | None:
            request = next(requests, None)
            return None if request is None else thread.submit(reader, request)

        ahead = ask()
        while ahead is not None:
            columns, ahead = ahead.result(), ask()
            yield from split_steps(columns, high - low)
