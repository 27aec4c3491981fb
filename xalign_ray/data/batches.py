"""A worker's rows of each global step, read from shards: what every feed runs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.schema import RunConfig
from xalign_ray.data.prepared import Prepared
from xalign_ray.text.collate import IGNORED, Columns
from xalign_ray.text.order import Order, Places, Request
from xalign_ray.text.streams import no_rows, stream_columns


class BatchReader:
    """Reads the rows of a request and makes the columns of each row's stream. Cheap to make; holds no rows."""

    def __init__(self, prepared: Prepared, config: RunConfig) -> None:
        self.prepared, self.config = prepared, config
        self.order: Order = prepared.order(config)
        self.sources = prepared.sources(config)
        self.context = prepared.context(config)
        # Every batch of a run has the columns of all its streams, whichever of them its rows happen to be of.
        self.columns = {
            name: values for stream in config.streams for name, values in no_rows(stream, self.context).items()
        }

    def __call__(self, request: Request) -> Columns:
        """The rows of a request in the order of (step, row): whole steps, ready to be split into batches."""
        order = self.order
        steps = range(request.first, request.last)
        positions = np.concatenate([order.positions(step, request.low, request.high) for step in steps])
        places = order.places(request)
        columns = {name: _blank(name, values, len(positions)) for name, values in self.columns.items()}
        for number, (stream, pool) in enumerate(self.sources):
            mine = np.flatnonzero(places.source == number)
            if not len(mine):
                continue
            rows = self.prepared.read(pool, Places(places.source[mine], places.group[mine], places.row[mine]))
            for name, values in stream_columns(
                self.config.streams[stream], rows, positions[mine], self.context
            ).items():
                columns[name][mine] = values
        return columns


def _blank(name: str, like: NDArray, rows: int) -> NDArray:
    return np.full((rows, *like.shape[1:]), IGNORED if name.endswith("labels") else 0, like.dtype)


def split_steps(columns: Columns, rows_per_step: int) -> Iterator[Columns]:
    """Splits the rows of a request into the batches of its steps."""
    for begin in range(0, len(columns["position"]), rows_per_step):
        yield {name: values[begin : begin + rows_per_step] for name, values in columns.items()}
