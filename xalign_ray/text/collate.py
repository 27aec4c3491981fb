"""Lays words, special tokens and labels out as fixed-length rows, and hashes each row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xalign_ray.text.counter_random import Bits, splitmix64
from xalign_ray.text.rows import Index, Ints, Rows, run_index, starts, sum_runs

IGNORED = -100  # the label of a position that is not predicted

Columns = dict[str, NDArray]
TOKEN_COLUMNS = ("input_ids", "labels", "position_ids", "segment_ids", "language_ids", "example_ids")


@dataclass(frozen=True)
class Vocabulary:
    """The ids a stream needs: the special tokens, and the regular pieces that may be drawn at random."""

    pad: int
    cls: int
    sep: int
    mask: int
    unknown: int
    regular: NDArray[np.int32]


@dataclass(frozen=True)
class Layout:
    """How an example stands in its row.

    sides: of an example, 1 or 2. reset_positions: the second side's positions start again at 1, as if it stood alone
    (XLM). segments: the second side has segment 1.
    """

    sides: int = 1
    reset_positions: bool = False
    segments: bool = False


@dataclass(frozen=True)
class Marked:
    """Values of some pieces: at [P] the numbers of the pieces, values [P]."""

    at: Index
    values: Ints


NOTHING = Marked(np.zeros(0, np.int64), np.zeros(0, np.int32))


def specials(sides_per_example: int) -> int:
    """Special tokens of an example: [CLS] and a [SEP] after each side."""
    return sides_per_example + 1


def used_tokens(rows: Rows, layout: Layout) -> Index:
    """[N] tokens of each row once it is laid out."""
    pieces = sum_runs(rows.word_length, sum_runs(rows.side_words, rows.row_sides))
    return pieces + rows.row_sides // layout.sides * specials(layout.sides)


def collate_rows(
    rows: Rows,
    layout: Layout,
    vocabulary: Vocabulary,
    max_seq_length: int,
    *,
    labels: Marked = NOTHING,
    switched: Marked = NOTHING,
) -> Columns:
    """`[CLS] side [SEP]` or `[CLS] side [SEP] side [SEP]` for each example, examples side by side in their row.

    Args:
        rows: what is shown.
        labels: the pieces that are predicted, and as what.
        switched: the pieces that have another language than their side, and which.

    Returns:
        The TOKEN_COLUMNS, each [N, max_seq_length]: int32 for pieces and labels, int16 for what says where they stand:
        every byte is copied on its way to the trainer. Tokens attend where `example_ids` agree and are not 0.
    """
    n, sides, sides_per_example = len(rows), len(rows.side_words), layout.sides
    side_row = run_index(rows.row_sides)
    example, side = np.divmod(np.arange(sides) - starts(rows.row_sides)[side_row], sides_per_example)
    leads = side == 0  # sides that bring a [CLS] before them; each has a [SEP] behind it
    side_length = sum_runs(rows.word_length, rows.side_words)
    taken = side_length + 1 + leads
    row_taken = sum_runs(taken, rows.row_sides)
    assert n == 0 or row_taken.max() <= max_seq_length, "a stream made a row too long"
    column = starts(taken) - starts(row_taken)[side_row]
    begin = column + side_row * max_seq_length  # where each side begins, among all positions of all rows

    # Columns that are constant over a side: runs of sides, and after each row's sides a run of padding.
    side_run = np.arange(sides) + side_row
    pad_run = np.cumsum(rows.row_sides) + np.arange(n)
    run_length = np.empty(sides + n, np.int64)
    run_length[side_run], run_length[pad_run] = taken, max_seq_length - row_taken

    def spread(of_side: NDArray[np.integer]) -> NDArray[np.int16]:
        of_run = np.zeros(sides + n, np.int16)
        of_run[side_run] = of_side
        return np.repeat(of_run, run_length)

    example_column = np.repeat(column[leads], sides_per_example)
    origin = np.where(leads | (not layout.reset_positions), example_column, column - 1)
    example_ids = spread(example + 1)
    position_ids = np.tile(np.arange(max_seq_length, dtype=np.int16), n) - spread(origin)
    position_ids *= example_ids > 0
    language_ids = spread(rows.side_language)

    piece_at = np.arange(len(rows.pieces)) + np.repeat(begin + leads - starts(side_length), side_length)
    input_ids = np.full(n * max_seq_length, vocabulary.pad, np.int32)
    input_ids[piece_at] = rows.pieces
    input_ids[begin[leads]] = vocabulary.cls
    input_ids[begin + taken - 1] = vocabulary.sep
    answers = np.full(n * max_seq_length, IGNORED, np.int32)
    answers[piece_at[labels.at]] = labels.values
    language_ids[piece_at[switched.at]] = switched.values
    segment_ids = spread(side) if layout.segments else np.zeros(n * max_seq_length, np.int16)
    columns = (input_ids, answers, position_ids, segment_ids, language_ids, example_ids)
    return {name: flat.reshape(n, max_seq_length) for name, flat in zip(TOKEN_COLUMNS, columns, strict=True)}


def hash_rows(positions: NDArray[np.int64], columns: Columns) -> Bits:
    """A 64-bit hash of (position, input ids, labels) for each row; their sum over a step is its `batch_hash`."""
    both = columns["input_ids"].astype(np.uint64) << np.uint64(32)
    both |= columns["labels"].view(np.uint32)
    both ^= splitmix64(np.arange(both.shape[1], dtype=np.uint64))
    return splitmix64(splitmix64(positions.view(np.uint64)) + splitmix64(both).sum(axis=1, dtype=np.uint64))
