"""Replaces words by translations: language first, uniformly, then a synonym of it, uniformly (DICT, section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xalign_ray.text.counter_random import PICK_LANGUAGE, PICK_SYNONYM, Bits, integers, random_bits
from xalign_ray.text.rows import Index, Ints, starts

NO_SYNONYM = -1


@dataclass(frozen=True)
class Lexicon:
    """Many-to-many dictionary as flat arrays: entries own groups (one a target language), groups own synonyms.

    entry_groups [E] groups of each entry; group_language [G] language id; group_synonyms [G] synonyms of each group;
    synonym_length [Y] pieces of each synonym; pieces [P] their piece ids.
    """

    entry_groups: Ints
    group_language: Ints
    group_synonyms: Ints
    synonym_length: Ints
    pieces: Ints

    @cached_property
    def first_group(self) -> Index:
        """[E] where the groups of each entry begin."""
        return starts(self.entry_groups)

    @cached_property
    def first_synonym(self) -> Index:
        """[G] where the synonyms of each group begin."""
        return starts(self.group_synonyms)

    @cached_property
    def first_piece(self) -> Index:
        """[Y] where the pieces of each synonym begin."""
        return starts(self.synonym_length)


def pick_synonyms(
    lexicon: Lexicon, entry: NDArray[np.integer], keys: Bits, word_number: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Draws a synonym for each entry, on its own.

    Args:
        entry: [W] dictionary entries, all of them real (no NO_ENTRY).
        keys: [W] keys of the words' rows; word_number: [W] numbers of the words within their rows.

    Returns:
        [W] synonym numbers and [W] their language ids.
    """
    group = lexicon.first_group[entry] + integers(
        random_bits(keys, PICK_LANGUAGE, word_number), lexicon.entry_groups[entry]
    )
    synonym = lexicon.first_synonym[group] + integers(
        random_bits(keys, PICK_SYNONYM, word_number), lexicon.group_synonyms[group]
    )
    return synonym, lexicon.group_language[group]


def within_room(growth: NDArray[np.integer], row: NDArray[np.integer], room: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which replacements fit: in word order, those up to which the growth of their row stays within its room.

    Shrinking replacements always fit, and do not make room for others: a conservative rule that needs no search.

    Args:
        growth: [R] pieces that each replacement adds (may be negative), rows consecutive.
        row: [R] the row of each; room: [N] free positions of each row.
    """
    positive = np.maximum(growth, 0).astype(np.int64)
    total = np.cumsum(positive)
    per_row = np.bincount(row, minlength=len(room)).astype(np.int64)
    before = np.concatenate(([0], total))[starts(per_row)]
    return (growth <= 0) | (total - before[row] <= room[row])
