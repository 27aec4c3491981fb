"""The stream of prediction from the other sentence: one side of a pair, and masked words of the other (ERNIE-M)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from xalign_ray.config.choices import MaskedTranslations
from xalign_ray.shards.rows import Rows, starts, sum_runs
from xalign_ray.streams.collate import IGNORED, Columns, Layout, Marked, collate_rows, hash_rows
from xalign_ray.streams.prediction import Batch, choose, locate_words, mask_units, swap_segments


def masked_translations(stream: MaskedTranslations, batch: Batch) -> Columns:
    """`[CLS] first side [SEP] masks [SEP]`: the first side whole, of the second side the words asked for, masked.

    Each mask stands at the position that its piece has in the whole pair, and so does the last [SEP]. All of it is one
    example, so that every attention hides the rest of the second side. A row is never longer than that of its pairs.
    """
    batch = mask_units(swap_segments(batch) if stream.random_order else batch)
    layout = Layout(segments=2, reset_positions=stream.positions == "reset", segment_ids=stream.segments)
    rows = batch.rows
    is_second = np.arange(len(rows.segment_words)) % 2 == 1
    eligible = np.repeat(is_second, rows.segment_words)
    kept = ~eligible | choose(batch, locate_words(batch, layout), layout, eligible)
    kept_pieces = np.repeat(kept, rows.word_length)
    shown = _without_words(rows, kept)
    at = np.flatnonzero(np.repeat(eligible, rows.word_length)[kept_pieces])
    labels = Marked(at, shown.pieces[at])
    pieces = shown.pieces.copy()
    pieces[at] = batch.context.vocabulary.mask
    columns = collate_rows(
        replace(shown, pieces=pieces), layout, batch.context.vocabulary, batch.context.max_seq_length, labels=labels
    )
    asked = columns["labels"] != IGNORED
    columns["position_ids"][asked] += (_places(rows)[kept_pieces] - _places(shown))[at].astype(np.int16)
    examples = columns["example_ids"]
    last = (examples > 0) & (examples != np.pad(examples[:, 1:], ((0, 0), (0, 1))))
    columns["position_ids"][last] += (_lengths(rows) - _lengths(shown))[is_second].astype(np.int16)
    return columns | {
        "position": batch.positions,
        "row_hash": hash_rows(batch.positions, columns),
        "cross_lingual": asked.sum(axis=1, dtype=np.int32),
        "no_room": np.zeros(len(rows), np.int32),
    }


def _without_words(rows: Rows, kept: np.ndarray) -> Rows:
    """The rows with some of their words, [W] whether each is kept, and without links."""
    none = np.zeros(0, np.int32)
    return Rows(
        pieces=rows.pieces[np.repeat(kept, rows.word_length)],
        word_length=rows.word_length[kept],
        entry=rows.entry[kept],
        segment_words=sum_runs(kept.astype(np.int64), rows.segment_words).astype(np.int32),
        segment_language=rows.segment_language,
        row_segments=rows.row_segments,
        segment_links=np.zeros_like(rows.segment_words),
        link_from=none,
        link_to=none,
    )


def _lengths(rows: Rows) -> np.ndarray:
    """[S] the pieces of each segment."""
    return sum_runs(rows.word_length, rows.segment_words)


def _places(rows: Rows) -> np.ndarray:
    """[P] the number of each piece within its segment, from 0."""
    lengths = _lengths(rows)
    return np.arange(len(rows.pieces)) - np.repeat(starts(lengths), lengths)
