"""The stream of momentum contrast: a masked pair, and its two sentences as query and key (PPA)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.choices import ContrastedPairs
from xalign_ray.shards.counter_random import splitmix64
from xalign_ray.shards.rows import NO_ENTRY, Ints, Rows, starts, sum_runs, take_segments
from xalign_ray.streams.collate import Columns, Layout, collate_rows
from xalign_ray.streams.hard_negatives import negatives_of
from xalign_ray.streams.prediction import Batch, choose, locate_words, mask_units, predict, swap_segments
from xalign_ray.streams.teacher_vectors import teacher_vectors


def contrasted_pairs(stream: ContrastedPairs, batch: Batch) -> Columns:
    """The token columns (`text`: TLM, each sentence on its own, or nothing masked), and the two sentences alone.

    Columns of its own: `query_` and `key_` `input_ids`, `position_ids`, `segment_ids`, `language_ids`, `example_ids`,
    int32 [N, L] each: `[CLS] prompt sentence [SEP]` for the first, respectively second, sentence of every pair as the
    token columns have them, nothing masked; example e of the key is the partner of example e of the query.
    `pair_hash` int64 [N, L]: at the [CLS] of each key example a non-zero hash of the sentence that prepare wrote first
    (the segment of the pivot language, query or key), zero elsewhere: pairs that share that sentence share the hash.
    `teacher`, where the data has one: see `teacher_vectors`. `hard_key_` and `hard_query_`, of the same fields, where
    the data have hard negatives: example e of a row is that of its query, which is in the language of the keys,
    respectively of its key.
    """
    pivot = _hash_segments(_take_every_other(batch.rows, 0))
    batch = swap_segments(batch) if stream.random_order else batch
    prompt = batch.context.prompts[stream.prompt] if stream.prompt else None
    query, key = (_collate_alone(_take_every_other(batch.rows, segment), batch, prompt) for segment in (0, 1))
    pair_hash = np.zeros(key["input_ids"].shape, np.int64)
    pair_hash[(key["example_ids"] > 0) & (key["position_ids"] == 0)] = pivot
    alone = {f"query_{name}": values for name, values in query.items()}
    alone |= {f"key_{name}": values for name, values in key.items()}
    if batch.context.hard_negatives:
        for role, segment in (("hard_key", 0), ("hard_query", 1)):
            columns = _collate_alone(negatives_of(batch.rows, segment), batch, prompt)
            alone |= {f"{role}_{name}": values for name, values in columns.items()}
    if shape := batch.context.teacher:
        alone["teacher"] = teacher_vectors(batch.rows, shape)
    return _mask_text(stream, mask_units(batch)) | alone | {"pair_hash": pair_hash}


def _mask_text(stream: ContrastedPairs, batch: Batch) -> Columns:
    layout = Layout(segments=2, reset_positions=stream.positions == "reset", segment_ids=stream.segments)
    if stream.text == "apart":
        layout = Layout()
    words = locate_words(batch, layout)
    nothing = np.zeros(len(words.row), np.bool_)
    return predict(batch, words, nothing if stream.text == "none" else choose(batch, words, layout), layout)


def _take_every_other(rows: Rows, segment: int) -> Rows:
    """The first (0) or second (1) segment of every pair."""
    return take_segments(rows, np.arange(segment, len(rows.segment_words), 2), rows.row_segments // 2)


def _collate_alone(rows: Rows, batch: Batch, prompt: Ints | None) -> Columns:
    rows = rows if prompt is None else _behind(prompt, rows)
    columns = collate_rows(rows, Layout(), batch.context.vocabulary, batch.context.max_seq_length)
    del columns["labels"]
    return columns


def _behind(prompt: Ints, rows: Rows) -> Rows:
    """Each segment behind a prompt, which is a word."""
    words = starts(rows.segment_words)
    pieces = starts(sum_runs(rows.word_length, rows.segment_words))
    return replace(
        rows,
        pieces=np.insert(rows.pieces, np.repeat(pieces, len(prompt)), np.tile(prompt, len(pieces))),
        word_length=np.insert(rows.word_length, words, len(prompt)),
        entry=np.insert(rows.entry, words, NO_ENTRY),
        segment_words=rows.segment_words + 1,
    )


def _hash_segments(rows: Rows) -> NDArray[np.int64]:
    """[S] a hash of the pieces of each segment and of their order, never 0."""
    length = sum_runs(rows.word_length, rows.segment_words)
    place = np.arange(len(rows.pieces)) - np.repeat(starts(length), length)
    mixed = splitmix64(rows.pieces.astype(np.uint64) | place.astype(np.uint64) << np.uint64(32))
    total = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)))  # modulo 2^64
    first = starts(length)
    hashes = splitmix64(total[first + length] - total[first])
    return np.where(hashes == 0, np.uint64(1), hashes).view(np.int64)
