"""The stream of word exchange: masked pairs, and which of their positions translate each other (WEAM)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.choices import AlignedPairs
from xalign_ray.shards.rows import Index, Rows, run_index, starts, sum_runs
from xalign_ray.streams.collate import Columns, Layout
from xalign_ray.streams.prediction import (
    Batch,
    choose,
    ends_of_links,
    locate_words,
    predict,
    split_words,
    swap_segments,
)


def aligned_pairs(stream: AlignedPairs, batch: Batch) -> Columns:
    """Masked pairs and `aligned` uint8 [N, L, ceil(L / 8)]: a symmetric 0/1 matrix over positions for each row.

    Bit j % 8 (counted from the lowest) of byte j // 8 of row i is 1 where positions i and j are aligned, so
    `np.unpackbits(aligned, axis=-1, bitorder="little")[..., :L]` is the matrix. Its diagonal is zero, and positions of
    different examples are never aligned.
    """
    batch = swap_segments(batch) if stream.random_order else batch
    pieces = split_words(batch.rows, stream.expand)
    if not batch.context.masking.whole_word_mask:
        batch = replace(batch, rows=pieces)
    layout = Layout(segments=2, reset_positions=stream.positions == "reset", segment_ids=stream.segments)
    words = locate_words(batch, layout)
    columns = predict(batch, words, choose(batch, words, layout), layout)
    return columns | {"aligned": _pack_links(pieces, batch.context.max_seq_length)}


def _pack_links(pieces: Rows, max_seq_length: int) -> NDArray[np.uint8]:
    """The matrix of rows whose words are pieces, bits packed."""
    left, right = ends_of_links(pieces)
    row, column = _places(pieces)
    across = -(-max_seq_length // 8)
    line = row * max_seq_length + column  # of each piece, among the lines of all matrices
    byte = np.concatenate((line[left] * across + column[right] // 8, line[right] * across + column[left] // 8))
    bit = np.concatenate((column[right], column[left])) % 8
    packed = np.zeros(len(pieces) * max_seq_length * across, np.uint8)
    for number in range(8):  # so that no byte is written for two bits at once
        packed[byte[bit == number]] |= np.uint8(1 << number)
    return packed.reshape(len(pieces), max_seq_length, across)


def _places(pieces: Rows) -> tuple[Index, Index]:
    """The row and column of each piece: before it stand pieces, a [CLS] of each pair, a [SEP] of each segment."""
    segment_row = run_index(pieces.row_segments)
    segment = np.arange(len(segment_row)) - starts(pieces.row_segments)[segment_row]
    of_segment = run_index(pieces.segment_words)
    row = segment_row[of_segment]
    number = np.arange(len(row)) - starts(sum_runs(pieces.segment_words, pieces.row_segments))[row]
    return row, number + (segment // 2 + 1 + segment)[of_segment]
