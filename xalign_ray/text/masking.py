"""Chooses the words that are predicted, and what the model sees in their place (METHODS 1.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xalign_ray.text.draws import CHOOSE_WORD, RANDOM_PIECE, SHOW, Bits, below, draw, uniform
from xalign_ray.text.rows import Index, starts

MASK, RANDOM, KEEP = 0, 1, 2


def budgets(lengths: NDArray[np.integer], rate: float) -> Index:
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
    group = np.repeat(np.arange(len(group_words)), group_words)
    candidates = np.arange(len(word_length)) if eligible is None else np.flatnonzero(eligible)
    priority = draw(keys[candidates], CHOOSE_WORD, word_number[candidates])
    candidates = candidates[np.lexsort((priority, group[candidates]))]
    length = word_length[candidates]
    per_group = np.bincount(group[candidates], minlength=len(group_words))
    first = starts(per_group)

    chosen = np.zeros(len(word_length), np.bool_)
    left = budget.astype(np.int64).copy()
    active = np.flatnonzero((per_group > 0) & (left > 0))
    turn = 0
    while len(active):  # one turn looks at one word of every group that still has budget and words
        at = first[active] + turn
        fits = length[at] <= left[active]
        chosen[candidates[at[fits]]] = True
        left[active[fits]] -= length[at[fits]]
        turn += 1
        active = active[(left[active] > 0) & (per_group[active] > turn)]
    return chosen


def choose_shown(
    keys: Bits, piece_number: NDArray[np.integer], mask_share: float, random_share: float
) -> NDArray[np.int8]:
    """What stands at each predicted piece: MASK, RANDOM or KEEP, drawn for each piece on its own (BERT's 80/10/10)."""
    u = uniform(draw(keys, SHOW, piece_number))
    return np.where(u < mask_share, MASK, np.where(u < mask_share + random_share, RANDOM, KEEP)).astype(np.int8)


def random_pieces(keys: Bits, piece_number: NDArray[np.integer], regular: NDArray[np.int32]) -> NDArray[np.int32]:
    """A piece drawn uniformly from the regular ones (no special, unused or padding ids) for each position."""
    return regular[below(draw(keys, RANDOM_PIECE, piece_number), np.full(len(keys), len(regular)))]
