"""Streams of masked text and pairs: MLM, TLM, and the streams of ERNIE-M, WEAM and PPA, with further columns."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.choices import AlignedPairs, ContrastedPairs, MaskedPairs, MaskedText, MaskedTranslations
from xalign_ray.shards.counter_random import PICK_NEGATIVE, random_bits, splitmix64, uniform
from xalign_ray.shards.rows import (
    Index,
    Rows,
    negatives_of,
    one_negative,
    run_index,
    spans,
    starts,
    sum_runs,
    take_segments,
    teacher_vectors,
)
from xalign_ray.streams.collate import IGNORED, Columns, Layout, Marked, collate_rows, hash_rows, used_tokens
from xalign_ray.streams.prediction import (
    Batch,
    Prompt,
    choose,
    ends_of_links,
    locate_words,
    mask_units,
    predict,
    split_words,
    swap_segments,
)
from xalign_ray.vocabulary.dictionary import within_room


def masked_text(_: MaskedText, batch: Batch) -> Columns:
    batch, layout = mask_units(batch), Layout()
    words = locate_words(batch, layout)
    return predict(batch, words, choose(batch, words, layout), layout)


def masked_pairs(stream: MaskedPairs, batch: Batch) -> Columns:
    batch = mask_units(swap_segments(batch) if stream.random_order else batch)
    layout = Layout(
        segments=2,
        reset_positions=stream.positions == "reset",
        segment_ids=stream.segments,
        double_separator=stream.double_separator,
    )
    words = locate_words(batch, layout)
    return predict(batch, words, choose(batch, words, layout), layout)


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
    visible = ~eligible | choose(batch, locate_words(batch, layout), layout, eligible)
    kept_pieces = np.repeat(visible, rows.word_length)
    shown = _without_words(rows, visible)
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


# The stream of word exchange: masked pairs, and which of their positions translate each other (WEAM).


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
    row, column = _row_and_column(pieces)
    across = -(-max_seq_length // 8)
    line = row * max_seq_length + column  # of each piece, among the lines of all matrices
    byte = np.concatenate((line[left] * across + column[right] // 8, line[right] * across + column[left] // 8))
    bit = np.concatenate((column[right], column[left])) % 8
    packed = np.zeros(len(pieces) * max_seq_length * across, np.uint8)
    for number in range(8):  # so that no byte is written for two bits at once
        packed[byte[bit == number]] |= np.uint8(1 << number)
    return packed.reshape(len(pieces), max_seq_length, across)


def _row_and_column(pieces: Rows) -> tuple[Index, Index]:
    """The row and column of each piece: before it stand pieces, a [CLS] of each pair, a [SEP] of each segment."""
    segment_row = run_index(pieces.row_segments)
    segment = np.arange(len(segment_row)) - starts(pieces.row_segments)[segment_row]
    of_segment = run_index(pieces.segment_words)
    row = segment_row[of_segment]
    number = np.arange(len(row)) - starts(sum_runs(pieces.segment_words, pieces.row_segments))[row]
    return row, number + (segment // 2 + 1 + segment)[of_segment]


# The stream of momentum contrast: a masked pair, and its two sentences as query and key (PPA).


def contrasted_pairs(stream: ContrastedPairs, batch: Batch) -> Columns:
    """The token columns (`text`: TLM, each sentence on its own, or nothing masked), and the two sentences alone.

    Further columns: `query_` and `key_` `input_ids`, `position_ids`, `segment_ids`, `language_ids`, `example_ids`,
    int32 [N, L] each: `[CLS] prompt sentence [SEP]` for the first, respectively second, sentence of every pair as the
    token columns have them, nothing masked; example e of the key is the partner of example e of the query.
    `pair_hash` int64 [N, L]: at the [CLS] of each key example a non-zero hash of the sentence that prepare wrote first
    (the segment of the pivot language, query or key), zero elsewhere: pairs that share that sentence share the hash.
    `teacher`, where the data has one: see `teacher_vectors`. `hard_key_` and `hard_query_`, of the same fields, where
    sentences bring hard negatives, a drawn one each: example e of a row is that of its query, which is in the
    language of the keys, respectively of its key.
    """
    pivot = _hash_segments(_take_every_other(batch.rows, 0))
    batch = swap_segments(batch) if stream.random_order else batch
    prompts = [batch.context.prompts.get(text) for text in stream.prompts]
    query, key = (_collate_alone(_take_every_other(batch.rows, segment), batch, prompts[segment]) for segment in (0, 1))
    pair_hash = np.zeros(key["input_ids"].shape, np.int64)
    pair_hash[(key["example_ids"] > 0) & (key["position_ids"] == 0)] = pivot
    alone = {f"query_{name}": values for name, values in query.items()}
    alone |= {f"key_{name}": values for name, values in key.items()}
    for segment in batch.context.negatives_of:
        columns = _collate_alone(negatives_of(_drawn_negatives(batch), segment), batch, prompts[1 - segment])
        alone |= {f"{('hard_key', 'hard_query')[segment]}_{name}": values for name, values in columns.items()}
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


def _drawn_negatives(batch: Batch) -> Rows:
    """The rows with one of the negatives of each sentence that brings several, drawn."""
    row = run_index(batch.rows.row_segments)
    number = np.arange(len(row)) - starts(batch.rows.row_segments)[row]
    return one_negative(batch.rows, uniform(random_bits(batch.keys[row], PICK_NEGATIVE, number)))


def _take_every_other(rows: Rows, segment: int) -> Rows:
    """The first (0) or second (1) segment of every pair."""
    return take_segments(rows, np.arange(segment, len(rows.segment_words), 2), rows.row_segments // 2)


def _collate_alone(rows: Rows, batch: Batch, prompt: Prompt | None) -> Columns:
    rows = rows if prompt is None else _behind(prompt, rows, batch.context.max_seq_length)
    columns = collate_rows(rows, Layout(), batch.context.vocabulary, batch.context.max_seq_length)
    del columns["labels"]
    return columns


def _behind(prompt: Prompt, rows: Rows, max_seq_length: int) -> Rows:
    """Each segment after a prompt, whose first word is tokenised with the prompt; apart where its row gets too long."""
    word = starts(rows.segment_words)  # the first of each segment
    length, first = rows.word_length.copy(), starts(rows.word_length)
    words = [rows.pieces[at : at + pieces].tolist() for at, pieces in zip(first[word], length[word], strict=True)]
    apart = [[*prompt.pieces.tolist(), *word_pieces] for word_pieces in words]
    together = [prompt.before(tuple(word_pieces)) for word_pieces in words]
    growth = np.array([len(joint) - len(plain) for joint, plain in zip(together, apart, strict=True)], np.int64)
    room = max_seq_length - used_tokens(rows, Layout()) - len(prompt.pieces) * rows.row_segments
    fits = within_room(growth, run_index(rows.row_segments), room).tolist()
    openings = [joint if fit else plain for joint, plain, fit in zip(together, apart, fits, strict=True)]
    length[word] = [len(opening) for opening in openings]
    first[word] = len(rows.pieces) + starts(length[word])
    pieces = np.concatenate((rows.pieces, np.fromiter(chain.from_iterable(openings), np.int32)))
    return replace(rows, pieces=pieces[spans(first, length)], word_length=length)


def _hash_segments(rows: Rows) -> NDArray[np.int64]:
    """[S] a hash of the pieces of each segment and of their order, never 0."""
    length = sum_runs(rows.word_length, rows.segment_words)
    number = np.arange(len(rows.pieces)) - np.repeat(starts(length), length)
    mixed = splitmix64(rows.pieces.astype(np.uint64) | number.astype(np.uint64) << np.uint64(32))
    total = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)))  # modulo 2^64
    first = starts(length)
    hashes = splitmix64(total[first + length] - total[first])
    return np.where(hashes == 0, np.uint64(1), hashes).view(np.int64)
