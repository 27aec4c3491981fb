"""Chooses the words that are predicted, and what the model sees in their place.

Formulas, and how the papers were read: docs/explanation/methods.md, Masking.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xalign_ray.text.counter_random import CHOOSE_WORD, RANDOM_PIECE, SHOW, Bits, integers, random_bits, uniform
from xalign_ray.text.rows import Index, run_index, starts, sum_runs

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
    taken = np.zeros(len(bits), np.bool_)
    for part in (early, ~early):
        mine = np.flatnonzero(part & (left > 0)[group])
        _take_in_turn(mine, bits, word_length, np.bincount(group[mine], minlength=len(left)), left, taken)
    if eligible is None or candidates is None:
        return taken
    chosen = np.zeros(len(eligible), np.bool_)
    chosen[candidates[taken]] = True
    return chosen


def _take_in_turn(
    mine: Index, bits: Bits, word_length: NDArray[np.integer], per_group: Index, left: Index, taken: NDArray[np.bool_]
) -> None:
    """Takes some of the words, of which each group has so many, in the order of their bits; lowers what is left."""
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
    """The members of consecutive groups, those of each group in the order of their random bits."""
    assert len(per_group) < 2**GROUP_BITS
    assert not len(per_group) or per_group.max() <= 2**PLACE_BITS
    group = run_index(per_group)
    place = np.arange(len(group)) - first[group]
    packed = (group << (RANDOM_BITS + PLACE_BITS) | place).astype(np.uint64)
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
