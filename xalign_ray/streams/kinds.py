"""What a row looks like to the model: the function that each kind of stream names, from rows and keys to columns."""

from __future__ import annotations

from pkgutil import resolve_name

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.choices import StreamChoice
from xalign_ray.shards.counter_random import row_keys
from xalign_ray.shards.rows import Rows, concatenate, split_rows
from xalign_ray.streams.collate import Columns
from xalign_ray.streams.prediction import Batch, StreamContext

SLICE = 512  # rows shown at a time: what is in work then stays in the processor's cache


def stream_columns(stream: StreamChoice, rows: Rows, positions: NDArray[np.int64], context: StreamContext) -> Columns:
    """The columns of a batch of rows of one stream: a pure function of (seed, position, row).

    Args:
        positions: [N] the rows' positions in the order.

    Returns:
        TOKEN_COLUMNS [N, max_seq_length] int32, and [N]: `position` int64, `row_hash` uint64, `cross_lingual` int32
        (labels that cross languages: a translation is asked for, or shown), `no_room` int32 (synonyms dropped
        because they did not fit). Some streams have columns of their own; their functions say which.
    """
    if len(rows) > SLICE:
        begins = range(0, len(rows), SLICE)
        parts = [
            stream_columns(stream, part, positions[begin : begin + SLICE], context)
            for begin, part in zip(begins, split_rows(rows, SLICE), strict=True)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    columns = resolve_name(stream.computed_by or f"{stream.__module__}:{stream.kind}")
    return columns(stream, Batch(rows, positions, row_keys(context.seed, positions), context))


def no_rows(stream: StreamChoice, context: StreamContext) -> Columns:
    """The columns of a stream without rows: their names, types and shapes."""
    return stream_columns(stream, concatenate([]), np.zeros(0, np.int64), context)
