"""The held-out rows of all languages as masked batches, mixed, so that every rank has the same share of the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.choices import MaskedText
from xalign_ray.config.schema import MaskingConfig
from xalign_ray.text.collate import Columns
from xalign_ray.text.prediction import StreamContext
from xalign_ray.text.rows import concatenate, take
from xalign_ray.text.streams import stream_columns

if TYPE_CHECKING:
    from xalign_ray.data.prepared import Prepared

HELD_OUT_ROWS = 64  # rows a language: enough for a curve, cheap enough to repeat


def held_out_batches(
    prepared: Prepared, rank: int, workers: int, batch_rows: int
) -> list[tuple[NDArray[np.int64], Columns]]:
    """The first rows of each language, masked the same in every run of this data, dealt to the ranks.

    Returns:
        For each batch of this rank the language of each row, a number of `prepared.languages`, and the columns. As many
        on each rank; of one batch a rank has at most a row more than another, perhaps none.
    """
    pools = sorted(prepared.manifest["held_out"])
    counts = [min(int(prepared.shards(pool, held_out=True).rows.sum()), HELD_OUT_ROWS) for pool in pools]
    of_pool = np.repeat(np.arange(len(pools)), counts)
    number = np.concatenate([np.arange(count) for count in [0, *counts]])
    languages = np.array([prepared.languages.index(pool.removeprefix("text/")) for pool in pools], np.int64)
    context = StreamContext(
        0, MaskingConfig(), prepared.vocabulary, None, prepared.manifest["max_seq_length"], global_rows=1
    )
    batches = []
    for begin in range(0, len(number), batch_rows * workers):
        together = min(batch_rows * workers, len(number) - begin)
        mine = slice(begin + together * rank // workers, begin + together * (rank + 1) // workers)
        places = [(pools[pool], number[mine][of_pool[mine] == pool]) for pool in np.unique(of_pool[mine])]
        parts = [take(prepared.first_rows(pool, HELD_OUT_ROWS, held_out=True), rows) for pool, rows in places]
        rows = concatenate(parts) if parts else take(prepared.first_rows(pools[0], 1, held_out=True), number[:0])
        batches.append((languages[of_pool[mine]], stream_columns(MaskedText(), rows, number[mine], context)))
    return batches
