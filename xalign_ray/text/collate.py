"""Lays words, special tokens and labels out as fixed-length rows, and hashes each row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xalign_ray.text.draws import Bits, scramble
from xalign_ray.text.rows import Ints, Rows, owners, starts, sum_runs

IGNORED = -100  # the label of a position that is not predicted

Columns = dict[str, NDArray]
TOKEN_COLUMNS = ("input_ids", "labels", "position_ids", "segment_ids", "language_ids", "example_ids")


@dataclass(frozen=True)
class Vocabulary:
    """The ids a view needs: the special tokens, and the regular pieces that may be drawn at random."""

    pad: int
    cls: int
    sep: int
    mask: int
    unknown: int
    regular: NDArray[np.int32]


def specials(sides_per_example: int) -> int:
    """Special tokens of an example: [CLS] and a [SEP] after each side."""
    return sides_per_example + 1


def lay_out(
    rows: Rows,
    sides_per_example: int,
    shown: Ints,
    labels: Ints,
    language: Ints,
    vocabulary: Vocabulary,
    row_tokens: int,
    *,
    reset_positions: bool,
    segments: bool,
) -> Columns:
    """`[CLS] side [SEP]` or `[CLS] side [SEP] side [SEP]` for each example, examples side by side in their row.

    Args:
        rows: the structure; its word lengths are those of what is shown.
        shown, labels, language: [T] for each piece: what stands there, what is predicted (or IGNORED), its language id.
        reset_positions: the second side's positions start again at 1, as if it stood alone (XLM).
        segments: the second side has segment 1.

    Returns:
        The TOKEN_COLUMNS, each int32 [N, row_tokens]. Tokens attend where `example_ids` agree and are not 0.
    """
    n, per = len(rows), specials(sides_per_example)
    side_length = sum_runs(rows.word_length, rows.side_words)
    side_row = owners(rows.row_sides)
    in_row = np.arange(len(side_row)) - starts(rows.row_sides)[side_row]
    example, side = np.divmod(in_row, sides_per_example)
    row_length = sum_runs(side_length, rows.row_sides)
    first_of_row = starts(row_length)  # of the row's pieces, among all pieces
    side_column = starts(side_length) - first_of_row[side_row] + example * per + 1 + side
    leads = side == 0
    cls_column = np.repeat(side_column[leads] - 1, sides_per_example)

    columns = {name: np.zeros((n, row_tokens), np.int32) for name in TOKEN_COLUMNS}
    columns["input_ids"][:] = vocabulary.pad
    columns["labels"][:] = IGNORED

    piece_side = owners(side_length)
    piece_column = side_column[piece_side] + np.arange(len(piece_side)) - starts(side_length)[piece_side]
    sep_column = side_column + side_length
    origin = np.where(reset_positions & (side > 0), side_column - 1, cls_column)

    def put(at_row: NDArray, at_column: NDArray, side_of: NDArray, ids: NDArray | int, tongue: NDArray) -> None:
        columns["input_ids"][at_row, at_column] = ids
        columns["language_ids"][at_row, at_column] = tongue
        columns["position_ids"][at_row, at_column] = at_column - origin[side_of]
        columns["segment_ids"][at_row, at_column] = side[side_of] if segments else 0
        columns["example_ids"][at_row, at_column] = example[side_of] + 1

    every = np.arange(len(side_row))
    put(side_row[piece_side], piece_column, piece_side, shown, language)
    put(side_row, sep_column, every, vocabulary.sep, rows.side_language)
    put(side_row[leads], cls_column[leads], every[leads], vocabulary.cls, rows.side_language[leads])
    columns["labels"][side_row[piece_side], piece_column] = labels
    return columns


def hash_rows(positions: NDArray[np.int64], columns: Columns) -> Bits:
    """A 64-bit hash of (position, input ids, labels) for each row; their sum over a step is its `batch_hash`."""
    ids, labels = (columns[name].astype(np.int64).view(np.uint64) for name in ("input_ids", "labels"))
    place = scramble(np.arange(ids.shape[1], dtype=np.uint64))
    mixed = scramble(scramble(ids ^ place) + labels)
    return scramble(scramble(positions.view(np.uint64)) + mixed.sum(axis=1, dtype=np.uint64))
