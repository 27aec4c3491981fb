"""Lays words, special tokens and labels out as fixed-length rows, and hashes each row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xalign_ray.shards.counter_random import Bits, splitmix64
from xalign_ray.shards.rows import Index, Ints, Rows, run_index, starts, sum_runs

IGNORED = -100  # the label of a position that is not predicted, which torch's cross-entropy leaves out

Columns = dict[str, NDArray]
TOKEN_COLUMNS = ("input_ids", "labels", "position_ids", "segment_ids", "language_ids", "example_ids")


@dataclass(frozen=True)
class SpecialIds:
    """Ids of the special tokens."""

    pad: int
    cls: int
    sep: int
    mask: int
    unknown: int


@dataclass(frozen=True)
class Vocabulary(SpecialIds):
    """The ids a stream needs: the special tokens, and the regular pieces that may be drawn at random."""

    regular: NDArray[np.int32]


@dataclass(frozen=True)
class Layout:
    """How an example stands in its row.

    segments: of an example, 1 or 2. reset_positions: the second segment's positions start again, as if it stood alone
    (XLM). segment_ids: the second segment has segment 1. double_separator: a [SEP] before the second segment too.
    """

    segments: int = 1
    reset_positions: bool = False
    segment_ids: bool = False
    double_separator: bool = False

    @property
    def specials(self) -> int:
        """Special tokens of an example."""
        return specials(self.segments) + self.double_separator


@dataclass(frozen=True)
class Marked:
    """Values of some pieces: at [P] the numbers of the pieces, values [P]."""

    at: Index
    values: Ints


NOTHING = Marked(np.zeros(0, np.int64), np.zeros(0, np.int32))


def specials(segments_per_example: int) -> int:
    """Special tokens of an example: [CLS] and a [SEP] after each segment."""
    return segments_per_example + 1


def used_tokens(rows: Rows, layout: Layout) -> Index:
    """[N] tokens of each row once it is laid out."""
    pieces = sum_runs(rows.word_length, sum_runs(rows.segment_words, rows.row_segments))
    return pieces + rows.row_segments // layout.segments * layout.specials


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

    Without [CLS] where the vocabulary has none: `side [SEP]`.

    With `double_separator` a pair is `[CLS] side [SEP] [SEP] side [SEP]`; the second side begins at its first [SEP].

    Args:
        rows: the inputs.
        labels: the pieces that are predicted, and as what.
        switched: the pieces that have another language than their segment, and which.

    Returns:
        The TOKEN_COLUMNS, each [N, max_seq_length]: int32 for pieces and labels, int16 for positions and ids:
        every byte is copied on its way to the trainer. Tokens attend where `example_ids` agree and are not 0.
    """
    n, segments, segments_per_example = len(rows), len(rows.segment_words), layout.segments
    segment_row = run_index(rows.row_segments)
    example, segment = np.divmod(np.arange(segments) - starts(rows.row_segments)[segment_row], segments_per_example)
    leads = segment == 0  # segments that bring a [CLS] before them; each has a [SEP] behind it
    has_cls = vocabulary.cls >= 0  # a decoder's tokenizer may have none
    opened = (leads & has_cls) | (~leads & layout.double_separator)  # segments with a special token before them
    segment_length = sum_runs(rows.word_length, rows.segment_words)
    tokens = segment_length + 1 + opened
    row_taken = sum_runs(tokens, rows.row_segments)
    assert n == 0 or row_taken.max() <= max_seq_length, "a stream made a row too long"
    column = starts(tokens) - starts(row_taken)[segment_row]
    begin = column + segment_row * max_seq_length  # where each segment begins, among all positions of all rows

    # Columns that are constant over a segment: runs of segments, and after each row's segments a run of padding.
    segment_run = np.arange(segments) + segment_row
    pad_run = np.cumsum(rows.row_segments) + np.arange(n)
    run_length = np.empty(segments + n, np.int64)
    run_length[segment_run], run_length[pad_run] = tokens, max_seq_length - row_taken

    def spread(of_segment: NDArray[np.integer]) -> NDArray[np.int16]:
        of_run = np.zeros(segments + n, np.int16)
        of_run[segment_run] = of_segment
        return np.repeat(of_run, run_length)

    example_column = np.repeat(column[leads], segments_per_example)
    origin = np.where(leads | (not layout.reset_positions), example_column, column - ~opened)
    example_ids = spread(example + 1)
    position_ids = np.tile(np.arange(max_seq_length, dtype=np.int16), n) - spread(origin)
    position_ids *= example_ids > 0
    language_ids = spread(rows.segment_language)

    piece_at = np.arange(len(rows.pieces)) + np.repeat(begin + opened - starts(segment_length), segment_length)
    input_ids = np.full(n * max_seq_length, vocabulary.pad, np.int32)
    input_ids[piece_at] = rows.pieces
    input_ids[begin[opened]] = vocabulary.sep
    input_ids[begin[leads & has_cls]] = vocabulary.cls
    input_ids[begin + tokens - 1] = vocabulary.sep
    answers = np.full(n * max_seq_length, IGNORED, np.int32)
    answers[piece_at[labels.at]] = labels.values
    language_ids[piece_at[switched.at]] = switched.values
    segment_ids = spread(segment) if layout.segment_ids else np.zeros(n * max_seq_length, np.int16)
    columns = (input_ids, answers, position_ids, segment_ids, language_ids, example_ids)
    return {name: flat.reshape(n, max_seq_length) for name, flat in zip(TOKEN_COLUMNS, columns, strict=True)}


def hash_rows(positions: NDArray[np.int64], columns: Columns) -> Bits:
    """A 64-bit hash of (position, input ids, labels) for each row; their sum over a step is its `batch_hash`."""
    both = columns["input_ids"].astype(np.uint64) << np.uint64(32)
    both |= columns["labels"].view(np.uint32)
    both ^= splitmix64(np.arange(both.shape[1], dtype=np.uint64))
    return splitmix64(splitmix64(positions.view(np.uint64)) + splitmix64(both).sum(axis=1, dtype=np.uint64))
