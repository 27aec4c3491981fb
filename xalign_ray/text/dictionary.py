"""Merges bilingual dictionaries into one lexicon, decides by hash which concepts are held out, and draws translations.

Formulas, and how the papers were read: docs/explanation/methods.md, DICT-MLM.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xalign_ray.text.counter_random import PICK_LANGUAGE, PICK_SYNONYM, Bits, integers, random_bits
from xalign_ray.text.rows import Index, Ints, starts

Key = tuple[int, str]  # language id and word form
Translation = tuple[Key, Key]


@dataclass
class Translations:
    """Translations, each once, with the counts of what was dropped: the state while dictionaries are read."""

    trained: dict[Translation, None] = field(default_factory=dict)
    held_out: dict[Translation, None] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class DictionaryPairs:
    """Pairs of words as pieces: left, right [n, k] padded with -1; left_language, right_language [n]."""

    left: Ints
    right: Ints
    left_language: Ints
    right_language: Ints

    def __len__(self) -> int:
        return len(self.left)


def add_entries(
    translations: Translations,
    entries: Iterable[tuple[Key, Key]],
    pivot: int | None,
    held_out_fraction: float,
    held_out: bool,
) -> None:
    """Adds the lines of one dictionary.

    A concept is its word in the pivot language (English where the dictionary has it, else the left word): holding out
    by the hash of that word holds a concept out in all languages at once, whatever the recipe and the order of files.
    Identity pairs (names, numbers) are no cross-lingual labels: dropped and counted. So are duplicates, whichever
    way round: a pair that two dictionaries give does not weigh twice.

    Args:
        pivot: the pivot's language id, or None.
        held_out_fraction: share of concepts to hold out; ignored if `held_out`, when all lines are.
    """
    for left, right in entries:
        translations.counts["lines"] += 1
        if left[1] == right[1]:
            translations.counts["identical"] += 1
            continue
        concept = right if right[0] == pivot else left
        out = held_out or _hash_share(concept[1]) < held_out_fraction
        kept = translations.held_out if out else translations.trained
        if (left, right) in kept or (right, left) in kept:
            translations.counts["duplicates"] += 1
        else:
            kept[left, right] = None


def _hash_share(word: str) -> float:
    digest = hashlib.blake2b(f"concept {word}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def separate(translations: Translations) -> None:
    """Drops held-out pairs of which a word is also trained on: what is scored as held out was never pulled anywhere."""
    seen = {key for translation in translations.trained for key in translation}
    leaked = [translation for translation in translations.held_out if translation[0] in seen or translation[1] in seen]
    translations.counts["held_out_dropped_seen_in_training"] += len(leaked)
    for translation in leaked:
        del translations.held_out[translation]


def build_lexicon(
    trained: Sequence[Translation], pieces_of: Callable[[Key], tuple[int, ...] | None]
) -> tuple[dict[Key, int], Lexicon]:
    """Every word of the trained links to its synonyms in other languages, both ways.

    Args:
        pieces_of: the pieces of a word, or None for one that cannot be a label (unknown or too many pieces).

    Returns:
        The entry number of each word that has a usable synonym, and the arrays.
    """
    synonyms: dict[Key, dict[int, dict[Key, None]]] = {}
    for left, right in trained:
        for source, target in ((left, right), (right, left)):
            if pieces_of(target) is not None:
                synonyms.setdefault(source, {}).setdefault(target[0], {})[target] = None
    entries = {key: number for number, key in enumerate(sorted(synonyms))}
    entry_groups, group_language, group_synonyms, lengths, pieces = [], [], [], [], []
    for key in entries:
        groups = synonyms[key]
        entry_groups.append(len(groups))
        for language in sorted(groups):
            group_language.append(language)
            group_synonyms.append(len(groups[language]))
            for target in sorted(groups[language]):
                found = pieces_of(target)
                assert found is not None
                lengths.append(len(found))
                pieces += found
    arrays = (entry_groups, group_language, group_synonyms, lengths, pieces)
    return entries, Lexicon(*(np.asarray(array, np.int32) for array in arrays))


def pair_arrays(
    translations: Sequence[Translation], pieces_of: Callable[[Key], tuple[int, ...] | None]
) -> DictionaryPairs:
    """The links both of whose words have pieces, as padded arrays for the alignment loss."""
    usable = [
        (a[0], b[0], x, y)
        for a, b in translations
        if (x := pieces_of(a)) is not None and (y := pieces_of(b)) is not None
    ]
    widest = max((max(len(x), len(y)) for *_, x, y in usable), default=1)

    def pad(words: list[tuple[int, ...]]) -> Ints:
        padded = np.full((len(words), widest), -1, np.int32)
        for row, word in enumerate(words):
            padded[row, : len(word)] = word
        return padded

    return DictionaryPairs(
        left=pad([x for *_, x, _ in usable]),
        right=pad([y for *_, y in usable]),
        left_language=np.asarray([a for a, *_ in usable], np.int32),
        right_language=np.asarray([b for _, b, *_ in usable], np.int32),
    )


# Replaces words by translations: language first, uniformly, then a synonym of it, uniformly (DICT, section 2.2).

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
