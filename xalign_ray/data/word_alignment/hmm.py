"""Which word of one side each word of the other comes from: a hidden Markov chain of places (Vogel et al. 1996)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xalign_ray.data.word_alignment.blocks import Reals

NULL = 0.2  # probability that a word comes from none of the other side
LONGEST_JUMP = 10  # longer jumps share a probability


def first_jumps() -> NDArray[np.float64]:
    """Weights of jumps from -LONGEST_JUMP to LONGEST_JUMP before any is counted: one word on is the most likely."""
    return np.exp(-np.abs(np.arange(-LONGEST_JUMP, LONGEST_JUMP + 1) - 1) / 2)


def posteriors(
    emission: Reals, null: Reals, states: NDArray[np.bool_], jumps: NDArray[np.float64]
) -> tuple[Reals, NDArray[np.float64]]:
    """The probability that word j comes from state i, and how often each jump is expected, by forward and backward.

    Vogel, Ney and Tillmann (1996), with a null word that stays where it is (Och and Ney 2003, section 2.1.2).

    Args:
        emission: [B, J, I] probability of word j where it comes from state i; 0 at padding.
        null: [B, J] probability of word j where it comes from the null word; 0 at padding, where nothing happens.
        states: [B, I] whether a state is there: False at padding.
        jumps: [2 * LONGEST_JUMP + 1] weights, relative to each other.

    Returns:
        [B, J, I], of which what is missing to 1 over I is the null word's; and [2 * LONGEST_JUMP + 1].
    """
    b, words, width = emission.shape
    distance = np.arange(width)[None, :] - np.arange(width)[:, None]
    distance = np.clip(distance, -LONGEST_JUMP, LONGEST_JUMP) + LONGEST_JUMP
    jump = jumps[distance].astype(np.float32)
    share = 1 / (states.astype(np.float32) @ jump.T)  # so that the jumps from each state sum to 1
    emission = np.ascontiguousarray(emission.transpose(1, 0, 2)) * np.float32(1 - NULL)
    none = np.where(null.T > 0, null.T * np.float32(NULL), np.float32(1))[:, :, None]
    before = np.empty((words, b, width), np.float32)  # where the chain stands before word j, spread over jumps
    real = np.empty_like(before)
    scale = np.empty((words, b, 1), np.float32)
    now = states / states.sum(axis=1, keepdims=True, dtype=np.float32)
    for j in range(words):
        before[j] = now * share
        real[j] = (before[j] @ jump if j else now) * emission[j]
        now = real[j] + now * none[j]
        scale[j] = now.sum(axis=1, keepdims=True)
        real[j] /= scale[j]
        now = now / scale[j]
    ahead = np.ones((b, width), np.float32)
    seen = emission  # is overwritten: what follows from word j on, seen from its state
    for j in range(words - 1, -1, -1):
        real[j] *= ahead
        stay = none[j] * ahead / scale[j]
        seen[j] *= ahead
        seen[j] /= scale[j]
        ahead = (seen[j] @ jump.T) * share + stay
    moves = (before[1:].reshape(-1, width).T @ seen[1:].reshape(-1, width)) * jump
    return real.transpose(1, 0, 2), np.bincount(distance.ravel(), moves.ravel(), len(jumps)).astype(np.float64)
