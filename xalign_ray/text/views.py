"""What a row looks like to the model: one function a kind of stream, from rows and keys to columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.choices import CodeSwitchedLabels, MaskedPairs, MaskedText, Stream
from xalign_ray.config.schema import MaskingConfig
from xalign_ray.text.code_switch import NO_SYNONYM, Lexicon, pick_synonyms, within_room
from xalign_ray.text.collate import Columns, Predicted, Vocabulary, hash_rows, lay_out, specials
from xalign_ray.text.draws import INSTANCE, SWAP_SIDES, SWITCH, Bits, draw, row_keys, uniform
from xalign_ray.text.masking import KEEP, MASK, RANDOM, budgets, choose_shown, choose_words, random_pieces
from xalign_ray.text.rows import NO_ENTRY, Ints, Rows, cut, owners, reorder_sides, spans, starts, sum_runs

Flags = NDArray[np.bool_]

SLICE = 512  # rows shown at a time: what is in work then stays in the processor's cache


@dataclass(frozen=True)
class ViewContext:
    """What is the same for every row of a run."""

    seed: int
    masking: MaskingConfig
    vocabulary: Vocabulary
    lexicon: Lexicon | None
    row_tokens: int


@dataclass(frozen=True)
class Words:
    """Where each word of a batch stands: its row, its number in the row, its example, its row's key."""

    row: NDArray[np.int64]
    number: NDArray[np.int64]
    example_words: NDArray[np.int64]
    keys: Bits


@dataclass(frozen=True)
class Switched:
    """Which words get another label: the synonym of each word or NO_SYNONYM, its language, and how many did not fit."""

    synonym: NDArray[np.int64]
    language: Ints
    no_room: NDArray[np.int64]


def view_rows(stream: Stream, rows: Rows, positions: NDArray[np.int64], context: ViewContext) -> Columns:
    """The columns of a batch of rows of one stream: a pure function of (seed, position, row).

    Args:
        positions: [N] the rows' positions in the order.

    Returns:
        TOKEN_COLUMNS [N, row_tokens] int32, and [N]: `position` int64, `row_hash` uint64, `cross_lingual` int32
        (labels in another language than their word), `no_room` int32 (synonyms dropped because the row was full).
    """
    if len(rows) > SLICE:
        begins = range(0, len(rows), SLICE)
        parts = [
            view_rows(stream, part, positions[begin : begin + SLICE], context)
            for begin, part in zip(begins, cut(rows, SLICE), strict=True)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    keys = row_keys(context.seed, positions)
    if not context.masking.whole_word:
        rows = _split_words(rows)
    return VIEWS[stream.kind](stream, rows, keys, positions, context)


def _masked_text(_: MaskedText, rows: Rows, keys: Bits, positions: NDArray[np.int64], context: ViewContext) -> Columns:
    words = _locate_words(rows, keys, sides_per_example=1)
    chosen = _choose(rows, words, 1, context)
    return _predict(rows, words, chosen, _nothing_switched(rows), positions, context)


def _masked_pairs(
    stream: MaskedPairs, rows: Rows, keys: Bits, positions: NDArray[np.int64], context: ViewContext
) -> Columns:
    if stream.random_order:
        rows = _swap_sides(rows, keys)
    words = _locate_words(rows, keys, sides_per_example=2)
    chosen = _choose(rows, words, 2, context)
    return _predict(
        rows,
        words,
        chosen,
        _nothing_switched(rows),
        positions,
        context,
        sides_per_example=2,
        reset_positions=stream.positions == "reset",
        segments=stream.segments,
    )


def _code_switched_labels(
    stream: CodeSwitchedLabels, rows: Rows, keys: Bits, positions: NDArray[np.int64], context: ViewContext
) -> Columns:
    assert context.lexicon is not None, "the config refuses this stream without dictionaries"
    words = _locate_words(rows, keys, sides_per_example=1)
    has_entry = rows.entry != NO_ENTRY
    if stream.mix_unit == "instance":
        example = owners(words.example_words)
        # An example is known by its row's key and its first word's number, so the draw is the same for all its words.
        first = words.number[starts(words.example_words)][example]
        in_dictionary_mode = uniform(draw(words.keys, INSTANCE, first)) < stream.t
        chosen = _choose(rows, words, 1, context, eligible=has_entry | ~in_dictionary_mode)
        switch = chosen & in_dictionary_mode
    else:
        chosen = _choose(rows, words, 1, context)
        switch = chosen & has_entry & (uniform(draw(words.keys, SWITCH, words.number)) < stream.t)
    switched = _switch(rows, words, switch, context, context.lexicon)
    return _predict(rows, words, chosen, switched, positions, context)


VIEWS: dict[str, Callable[..., Columns]] = {
    "masked_text": _masked_text,
    "masked_pairs": _masked_pairs,
    "code_switched_labels": _code_switched_labels,
}


def _locate_words(rows: Rows, keys: Bits, sides_per_example: int) -> Words:
    side_row = owners(rows.row_sides)
    row = side_row[owners(rows.side_words)]
    row_words = sum_runs(rows.side_words, rows.row_sides)
    number = np.arange(len(row)) - starts(row_words)[row]
    example_words = rows.side_words.reshape(-1, sides_per_example).sum(axis=1, dtype=np.int64)
    return Words(row, number, example_words, keys[row])


def _choose(rows: Rows, words: Words, sides: int, context: ViewContext, eligible: Flags | None = None) -> Flags:
    lengths = sum_runs(rows.word_length, words.example_words) + specials(sides)
    budget = budgets(lengths, context.masking.rate)
    return choose_words(words.keys, words.number, rows.word_length, words.example_words, budget, eligible)


def _nothing_switched(rows: Rows) -> Switched:
    nothing = np.full(len(rows.word_length), NO_SYNONYM, np.int64)
    return Switched(nothing, np.zeros(len(nothing), np.int32), np.zeros(len(rows), np.int64))


def _switch(rows: Rows, words: Words, switch: Flags, context: ViewContext, lexicon: Lexicon) -> Switched:
    """Draws synonyms for the flagged words; one that would make its row too long falls back to the word itself."""
    at = np.flatnonzero(switch)
    synonym, language = pick_synonyms(lexicon, rows.entry[at], words.keys[at], words.number[at])
    growth = lexicon.synonym_length[synonym] - rows.word_length[at]
    row_words = sum_runs(rows.side_words, rows.row_sides)
    used = sum_runs(rows.word_length, row_words) + rows.row_sides * specials(1)
    fits = within_room(growth, words.row[at], context.row_tokens - used)
    switched = _nothing_switched(rows)
    switched.synonym[at[fits]] = synonym[fits]
    switched.language[at[fits]] = language[fits]
    no_room = np.bincount(words.row[at[~fits]], minlength=len(rows))
    return replace(switched, no_room=no_room)


def _predict(
    rows: Rows,
    words: Words,
    chosen: Flags,
    switched: Switched,
    positions: NDArray[np.int64],
    context: ViewContext,
    *,
    sides_per_example: int = 1,
    reset_positions: bool = False,
    segments: bool = False,
) -> Columns:
    """Masks the chosen words: the slot of a word has the length of its label (METHODS 4.2, `label_length`)."""
    vocabulary, masking = context.vocabulary, context.masking
    is_switched = switched.synonym != NO_SYNONYM
    label, length = _label_pieces(rows, switched.synonym, is_switched, context.lexicon)
    first = starts(length)

    word = np.repeat(at_words := np.flatnonzero(chosen), length[at_words])  # of each predicted piece
    at = spans(first[at_words], length[at_words])
    number = at - _first_of_row(rows, words, length)[word]
    keys = words.keys[word]
    what = choose_shown(keys, number, masking.mask_share, masking.random_share)
    # A kept slot shows the source word, never a translated label; where the lengths differ it shows [MASK].
    comparable = (length == rows.word_length)[word]
    source = rows.pieces[np.where(comparable, starts(rows.word_length)[word] + at - first[word], 0)]
    seen = np.where(what == RANDOM, random_pieces(keys, number, vocabulary.regular), source)
    hide = (what == MASK) | ((what == KEEP) & ~comparable)
    labels = label[at]
    shown = label.copy()
    shown[at] = np.where(hide, vocabulary.mask, seen)
    side_language = rows.side_language[owners(rows.side_words)]
    language = np.where(is_switched, switched.language, side_language)[word]

    columns = lay_out(
        replace(rows, word_length=length),
        sides_per_example,
        shown,
        Predicted(at, labels, language),
        vocabulary,
        context.row_tokens,
        reset_positions=reset_positions,
        segments=segments,
    )
    cross_lingual = np.bincount(words.row[is_switched], weights=length[is_switched], minlength=len(rows))
    return columns | {
        "position": positions,
        "row_hash": hash_rows(positions, columns),
        "cross_lingual": cross_lingual.astype(np.int32),
        "no_room": switched.no_room.astype(np.int32),
    }


def _first_of_row(rows: Rows, words: Words, length: Ints) -> NDArray[np.int64]:
    """For each word, the number of the first piece of its row, if words had these lengths."""
    return starts(sum_runs(length, sum_runs(rows.side_words, rows.row_sides)))[words.row]


def _label_pieces(
    rows: Rows, synonym: NDArray[np.int64], is_switched: Flags, lexicon: Lexicon | None
) -> tuple[Ints, Ints]:
    """The pieces of every word as it is to be predicted, and their number for each word."""
    if lexicon is None or not is_switched.any():
        return rows.pieces, rows.word_length
    used = synonym[is_switched]
    used_length = lexicon.synonym_length[used]
    length, first = rows.word_length.copy(), starts(rows.word_length)
    length[is_switched], first[is_switched] = used_length, len(rows.pieces) + starts(used_length)
    translations = lexicon.pieces[spans(lexicon.first_piece[used], used_length)]
    return np.concatenate((rows.pieces, translations))[spans(first, length)], length


def _swap_sides(rows: Rows, keys: Bits) -> Rows:
    """Swaps the two sides of each pair with probability 1/2."""
    side_row = owners(rows.row_sides)[::2]
    example = np.arange(len(side_row)) - starts(rows.row_sides // 2)[side_row]
    swap = uniform(draw(keys[side_row], SWAP_SIDES, example)) < 0.5
    first = np.arange(len(side_row)) * 2
    return reorder_sides(rows, np.stack((first + swap, first + ~swap), axis=1).ravel())


def _split_words(rows: Rows) -> Rows:
    """Every piece a word of its own, for masking by piece; a multi-piece word then has no dictionary entry."""
    entry = np.where(rows.word_length == 1, rows.entry, NO_ENTRY).astype(np.int32)
    return replace(
        rows,
        word_length=np.ones(len(rows.pieces), np.int32),
        entry=np.repeat(entry, rows.word_length),
        side_words=sum_runs(rows.word_length, rows.side_words).astype(np.int32),
    )
