"""What streams share: the words of a batch, which of them are predicted, and what is shown in their place."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.fields import value_at
from xalign_ray.config.schema import MaskingConfig
from xalign_ray.text.code_switch import Lexicon
from xalign_ray.text.collate import NOTHING, Columns, Layout, Marked, Vocabulary, collate_rows, hash_rows
from xalign_ray.text.counter_random import SWAP_SEGMENTS, Bits, random_bits, uniform
from xalign_ray.text.masking import KEEP, MASK, RANDOM, budgets, choose_shown, choose_words, random_pieces
from xalign_ray.text.piece_links import split_words
from xalign_ray.text.rows import Index, Ints, Rows, reorder_segments, run_index, spans, starts, sum_runs

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class StreamContext:
    """What is the same for every row of a run.

    global_rows: rows of a step; they make steps of positions. no_dictionary: languages of whose words no translation is
    known.
    """

    seed: int
    masking: MaskingConfig
    vocabulary: Vocabulary
    lexicon: Lexicon | None
    max_seq_length: int
    global_rows: int
    no_dictionary: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Batch:
    """Rows at their positions in the order, [N] each, and the keys that all their draws are made with."""

    rows: Rows
    positions: NDArray[np.int64]
    keys: Bits
    context: StreamContext

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Words:
    """Where each word of a batch stands: its row [W], its number in the row [W], its row's key [W].

    example_words [X] words of each example; example_row [X] the row of each example.
    """

    row: Index
    number: Index
    keys: Bits
    example_words: Index
    example_row: Index


def mask_units(batch: Batch) -> Batch:
    """The batch with its pieces as words if it is masked by piece, as it is if by whole words."""
    return batch if batch.context.masking.whole_word_mask else replace(batch, rows=split_words(batch.rows))


def swap_segments(batch: Batch) -> Batch:
    """Swaps the two segments of each pair with probability 1/2."""
    pairs = batch.rows.row_segments // 2
    row = run_index(pairs)
    example = np.arange(len(row)) - starts(pairs)[row]
    swap = uniform(random_bits(batch.keys[row], SWAP_SEGMENTS, example)) < 0.5
    first = np.arange(len(row)) * 2
    return replace(batch, rows=reorder_segments(batch.rows, np.stack((first + swap, first + ~swap), axis=1).ravel()))


def locate_words(batch: Batch, layout: Layout) -> Words:
    """Where the words stand."""
    rows = batch.rows
    segment_row = run_index(rows.row_segments)
    row = segment_row[run_index(rows.segment_words)]
    row_words = sum_runs(rows.segment_words, rows.row_segments)
    number = np.arange(len(row)) - starts(row_words)[row]
    example_words = rows.segment_words.reshape(-1, layout.segments).sum(axis=1, dtype=np.int64)
    return Words(row, number, batch.keys[row], example_words, segment_row[:: layout.segments])


def choose(
    batch: Batch, words: Words, layout: Layout, eligible: Flags | None = None, others: Flags | None = None
) -> Flags:
    """The words that are predicted: [W].

    Args:
        eligible: [W] the words that may be chosen; all if not given.
        others: [W] words that may be chosen with what the eligible ones leave of an example's budget.
    """
    length = batch.rows.word_length
    tokens = sum_runs(length, words.example_words) + layout.specials
    budget = budgets(tokens, _rate(batch)[words.example_row])
    chosen = choose_words(words.keys, words.number, length, words.example_words, budget, eligible)
    if others is not None:
        left = budget - sum_runs(length * chosen, words.example_words)
        chosen |= choose_words(words.keys, words.number, length, words.example_words, left, others)
    return chosen


def _rate(batch: Batch) -> NDArray[np.float64]:
    """[N] the share of tokens to predict at each row's step."""
    rate = batch.context.masking.mlm_probability
    steps, which = np.unique(batch.positions // batch.context.global_rows, return_inverse=True)
    return np.array([value_at(rate, step) for step in steps.tolist()], np.float64)[which]


def predict(
    batch: Batch,
    words: Words,
    chosen: Flags,
    layout: Layout,
    *,
    source: Rows | None = None,
    visible: Flags | None = None,
    switched: Marked = NOTHING,
    no_room: Index | None = None,
) -> Columns:
    """Masks the chosen words and collates: a word has as many positions as its label has pieces (DICT, section 2.3).

    Args:
        batch: its rows are the labels, in place.
        chosen: [W] the words that are predicted.
        source: what is shown that is neither masked nor random, where that is not the label: the same words, some
            perhaps of another length. A word of another length than its label shows [MASK] instead.
        visible: [W] chosen words that are neither masked nor random, whatever is drawn.
        switched: pieces of the labels in another language than their segment, and which.
        no_room: [N] synonyms that did not fit.
    """
    rows, vocabulary, masking = batch.rows, batch.context.vocabulary, batch.context.masking
    length, first = rows.word_length, starts(rows.word_length)
    first_of_row = starts(sum_runs(length, sum_runs(rows.segment_words, rows.row_segments)))

    word = np.repeat(at_words := np.flatnonzero(chosen), length[at_words])  # of each predicted piece
    at = spans(first[at_words], length[at_words])
    number = at - first_of_row[words.row[word]]
    keys = words.keys[word]
    what = choose_shown(keys, number, masking.mask_replace_prob, masking.random_replace_prob)
    if visible is not None:
        what[visible[word]] = KEEP
    labels = rows.pieces[at]
    kept, comparable = _kept(rows, source, word, at - first[word]) if source is not None else (labels, np.True_)
    seen = np.where(what == RANDOM, random_pieces(keys, number, vocabulary.regular), kept)
    shown = rows.pieces.copy()
    shown[at] = np.where((what == MASK) | ((what == KEEP) & ~comparable), vocabulary.mask, seen)

    columns = collate_rows(
        replace(rows, pieces=shown),
        layout,
        vocabulary,
        batch.context.max_seq_length,
        labels=Marked(at, labels),
        switched=switched,
    )
    return columns | {
        "position": batch.positions,
        "row_hash": hash_rows(batch.positions, columns),
        "cross_lingual": _count_switched(at, switched, first_of_row, len(rows.pieces)),
        "no_room": np.zeros(len(rows), np.int32) if no_room is None else no_room.astype(np.int32),
    }


def _kept(rows: Rows, source: Rows, word: Index, within: Index) -> tuple[Ints, Flags]:
    """For pieces `within` words of the rows, the same pieces of the source, and whether the two words compare."""
    comparable = (rows.word_length == source.word_length)[word]
    return source.pieces[np.where(comparable, starts(source.word_length)[word] + within, 0)], comparable


def _count_switched(predicted: Index, switched: Marked, first_of_row: Index, pieces: int) -> Ints:
    """[N] the predicted pieces that are switched."""
    is_predicted = np.zeros(pieces, np.bool_)
    is_predicted[predicted] = True
    both = switched.at[is_predicted[switched.at]]
    row = np.searchsorted(first_of_row, both, side="right") - 1
    return np.bincount(row, minlength=len(first_of_row)).astype(np.int32)
