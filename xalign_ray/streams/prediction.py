"""Masking, shared by all streams: the words of a batch, the choice of predicted words, and their inputs.

`stream_columns`, at the end, calls the function that a kind of stream names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.choices import StreamChoice
from xalign_ray.config.fields import value_at
from xalign_ray.config.plugins import find_code
from xalign_ray.config.schema import MaskingConfig
from xalign_ray.shards.counter_random import (
    CHOOSE_WORD,
    RANDOM_PIECE,
    SHOW,
    SWAP_SEGMENTS,
    Bits,
    integers,
    random_bits,
    row_keys,
    uniform,
)
from xalign_ray.shards.rows import (
    NO_ENTRY,
    Index,
    Ints,
    Rows,
    VectorShape,
    concatenate,
    reorder_segments,
    run_index,
    spans,
    split_rows,
    starts,
    sum_runs,
)
from xalign_ray.streams.collate import NOTHING, Columns, Layout, Marked, Vocabulary, collate_rows, hash_rows
from xalign_ray.vocabulary.dictionary import Lexicon

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Prompt:
    """A text before each sentence.

    pieces: of the text alone, without a blank at its end. before: gives the pieces of the text and of the word that
    begins a sentence, by those that the word has there: behind a blank many tokenizers cut it otherwise.
    """

    pieces: Ints
    before: Callable[[tuple[int, ...]], Sequence[int]]


@dataclass(frozen=True)
class StreamContext:
    """The constants of a run's rows.

    global_rows: rows of a step. no_dictionary: languages without translations. teacher: of the vectors that pairs
    bring along. negatives_of: sides of pairs that bring hard negatives. prompts: by their texts.
    """

    seed: int
    masking: MaskingConfig
    vocabulary: Vocabulary
    lexicon: Lexicon | None
    max_seq_length: int
    global_rows: int
    no_dictionary: frozenset[int] = frozenset()
    teacher: VectorShape | None = None
    negatives_of: tuple[int, ...] = ()
    prompts: Mapping[str, Prompt] = field(default_factory=dict)


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
    """The batch with each piece as a word if masking is by piece; unchanged if by whole words."""
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
        others: [W] words that may be chosen with the budget of an example that the eligible ones leave.
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
    context = batch.context
    step = batch.positions // context.global_rows
    steps, which = np.unique(step, return_inverse=True)
    return np.array([value_at(context.masking.mlm_probability, step) for step in steps.tolist()], np.float64)[which]


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
        source: the inputs that are neither masked nor random, where they differ from the label: the same words, some
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
    inputs, comparable = _kept(rows, source, word, at - first[word]) if source is not None else (labels, np.True_)
    seen = np.where(what == RANDOM, random_pieces(keys, number, vocabulary.regular), inputs)
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


# The choice of predicted words, and of their inputs.
#
# Formulas, and how the papers were read: docs/explanation/methods.md, Masking.

MASK, RANDOM, KEEP = 0, 1, 2

# A candidate as one number, so that one sort orders them all: its group, 30 random bits, its place in the group.
PLACE_BITS, RANDOM_BITS, GROUP_BITS = 13, 30, 21
EARLY = 2  # times as many words as a budget takes are put in order first: any number gives the same words


def budgets(lengths: NDArray[np.integer], rate: float | NDArray[np.float64]) -> Index:
    """Pieces to predict in sequences of these lengths, special tokens included: BERT's max(1, round(rate * length)).

    Rounds half to even, as Python's `round` in BERT's create_pretraining_data.py does.
    """
    return np.maximum(1, np.rint(lengths * rate)).astype(np.int64)


def choose_words(
    keys: Bits,
    word_number: NDArray[np.integer],
    word_length: NDArray[np.integer],
    group_words: NDArray[np.integer],
    budget: Index,
    eligible: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_]:
    """Whole-word masking with an exact budget: shuffle a group's words, take them in turn, skip what does not fit.

    The shuffle is by the upper 30 bits of each word's draw; equal ones (once in 10^9 pairs) stay in the order of text.

    Args:
        keys: [W] the key of each word's row.
        word_number: [W] the word's number within its row; with the key it decides the shuffle.
        word_length: [W] pieces of each word.
        group_words: [G] words of each group (example); groups are consecutive.
        budget: [G] pieces that may be chosen in each group.
        eligible: [W] words that may be chosen; all if not given.

    Returns:
        [W] whether the word is chosen. Source: BERT, create_pretraining_data.py, `create_masked_lm_predictions`.
    """
    candidates = None
    if eligible is not None:
        candidates = np.flatnonzero(eligible)
        keys, word_number, word_length = keys[candidates], word_number[candidates], word_length[candidates]
        group_words = sum_runs(eligible.astype(np.int64), group_words)
    bits = random_bits(keys, CHOOSE_WORD, word_number)
    group, left = run_index(group_words), budget.astype(np.int64)
    # Few words are looked at, so only those that come early are put in order; the others where a budget is left.
    share = min(1.0, EARLY * left.sum() / max(1, word_length.sum()))
    early = bits >> np.uint64(64 - RANDOM_BITS) < np.uint64(share * 2**RANDOM_BITS)
    selected = np.zeros(len(bits), np.bool_)
    for part in (early, ~early):
        mine = np.flatnonzero(part & (left > 0)[group])
        _take_in_turn(mine, bits, word_length, np.bincount(group[mine], minlength=len(left)), left, selected)
    if eligible is None or candidates is None:
        return selected
    chosen = np.zeros(len(eligible), np.bool_)
    chosen[candidates[selected]] = True
    return chosen


def _take_in_turn(
    mine: Index, bits: Bits, word_length: NDArray[np.integer], per_group: Index, left: Index, taken: NDArray[np.bool_]
) -> None:
    """Takes words in the order of their bits within each group of `per_group` words; lowers the budgets `left`."""
    first = starts(per_group)
    order = mine[_shuffle(bits[mine], per_group, first)]
    length = word_length[order]
    fits = np.zeros(len(order), np.bool_)
    active = np.flatnonzero(per_group > 0)
    turn = 0
    while len(active):  # one turn looks at one word of every group that still has budget and words
        at = first[active] + turn
        fits[at] = now = length[at] <= left[active]
        left[active] -= length[at] * now
        turn += 1
        active = active[(left[active] > 0) & (per_group[active] > turn)]
    taken[order[fits]] = True


def _shuffle(bits: Bits, per_group: Index, first: Index) -> Index:
    """The members of consecutive groups, within each group in the order of their random bits."""
    assert len(per_group) < 2**GROUP_BITS
    assert not len(per_group) or per_group.max() <= 2**PLACE_BITS
    group = run_index(per_group)
    rank = np.arange(len(group)) - first[group]
    packed = (group << (RANDOM_BITS + PLACE_BITS) | rank).astype(np.uint64)
    packed |= bits >> np.uint64(64 - RANDOM_BITS) << np.uint64(PLACE_BITS)
    packed.sort()
    return first[group] + (packed & np.uint64(2**PLACE_BITS - 1)).astype(np.int64)


def choose_shown(
    keys: Bits, piece_number: NDArray[np.integer], mask_replace_prob: float, random_replace_prob: float
) -> NDArray[np.int8]:
    """What stands at each predicted piece: MASK, RANDOM or KEEP, drawn for each piece on its own (BERT's 80/10/10)."""
    u = uniform(random_bits(keys, SHOW, piece_number))
    return np.where(
        u < mask_replace_prob, MASK, np.where(u < mask_replace_prob + random_replace_prob, RANDOM, KEEP)
    ).astype(np.int8)


def random_pieces(keys: Bits, piece_number: NDArray[np.integer], regular: NDArray[np.int32]) -> NDArray[np.int32]:
    """A piece drawn uniformly from the regular ones (no special, unused or padding ids) for each position."""
    return regular[integers(random_bits(keys, RANDOM_PIECE, piece_number), np.full(len(keys), len(regular)))]


# Word alignments as links between pieces.
#
# Formulas, and how the papers were read: docs/explanation/methods.md, WEAM.

Expand = Literal["all", "first", "diagonal"]


def split_words(rows: Rows, expand: Expand = "all") -> Rows:
    """Every piece as a word; a multi-piece word then has no dictionary entry, and its links are its pieces'.

    Args:
        expand: a link of two words becomes links of `all` pieces of one with all of the other, of their `first`
            pieces only, or of the i-th with the i-th as far as both have one (`diagonal`).
    """
    entry = np.where(rows.word_length == 1, rows.entry, NO_ENTRY).astype(np.int32)
    segment_links, link_from, link_to = _expand(rows, expand)
    return replace(
        rows,
        word_length=np.ones(len(rows.pieces), np.int32),
        entry=np.repeat(entry, rows.word_length),
        segment_words=sum_runs(rows.word_length, rows.segment_words).astype(np.int32),
        segment_links=segment_links,
        link_from=link_from,
        link_to=link_to,
    )


def ends_of_links(rows: Rows) -> tuple[Index, Index]:
    """The two words of each link, both [K], as numbers among all words."""
    source_segment = run_index(rows.segment_links)
    first_word = starts(rows.segment_words)
    other = source_segment ^ 1  # rows that have links consist of pairs
    assert (rows.link_from < rows.segment_words[source_segment]).all()
    assert (rows.link_to < rows.segment_words[other]).all()
    return first_word[source_segment] + rows.link_from, first_word[other] + rows.link_to


def _expand(rows: Rows, expand: Expand) -> tuple[Ints, Ints, Ints]:
    if not len(rows.link_from):
        return rows.segment_links, rows.link_from, rows.link_to
    words = ends_of_links(rows)
    left, right = (rows.word_length[word].astype(np.int64) for word in words)
    count = {"all": left * right, "first": np.ones_like(left), "diagonal": np.minimum(left, right)}[expand]
    link = run_index(count)
    number = np.arange(len(link)) - starts(count)[link]
    across = np.divmod(number, right[link]) if expand == "all" else (number, number)
    source_segment = run_index(rows.segment_links)
    first_piece = starts(rows.word_length)
    first_of_segment = starts(sum_runs(rows.word_length, rows.segment_words))
    ends = [
        (first_piece[word] - first_of_segment[segment])[link] + step
        for word, segment, step in zip(words, (source_segment, source_segment ^ 1), across, strict=True)
    ]
    return sum_runs(count, rows.segment_links).astype(np.int32), ends[0].astype(np.int32), ends[1].astype(np.int32)


SLICE = 512  # rows collated at a time: the arrays then stay in the processor's cache


def stream_columns(stream: StreamChoice, rows: Rows, positions: NDArray[np.int64], context: StreamContext) -> Columns:
    """The columns of a batch of rows of one stream: a pure function of (seed, position, row).

    Args:
        positions: [N] the rows' positions in the order.

    Returns:
        TOKEN_COLUMNS [N, max_seq_length] int32, and [N]: `position` int64, `row_hash` uint64, `cross_lingual` int32
        (labels that cross languages: a translation is the label, or the input), `no_room` int32 (synonyms dropped
        because they did not fit). Some streams have further columns; their functions document them.
    """
    if len(rows) > SLICE:
        begins = range(0, len(rows), SLICE)
        parts = [
            stream_columns(stream, part, positions[begin : begin + SLICE], context)
            for begin, part in zip(begins, split_rows(rows, SLICE), strict=True)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    columns = find_code(stream.computed_by or f"{stream.__module__}:{stream.kind}")
    return columns(stream, Batch(rows, positions, row_keys(context.seed, positions), context))


def no_rows(stream: StreamChoice, context: StreamContext) -> Columns:
    """The columns of a stream without rows: their names, types and shapes."""
    return stream_columns(stream, concatenate([]), np.zeros(0, np.int64), context)
