"""Random rows and a random lexicon for tests: realistic shapes, nothing in the pieces."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from xalign_ray.config.schema import MaskingConfig
from xalign_ray.shards.rows import Rows
from xalign_ray.streams.collate import Vocabulary
from xalign_ray.streams.prediction import StreamContext
from xalign_ray.vocabulary.dictionary import Lexicon

SPECIAL = {"pad": 0, "unknown": 1, "cls": 2, "sep": 3, "mask": 4}
REGULAR = np.arange(10, 1000, dtype=np.int32)  # 5 to 9 stand for `[unused..]` pieces
VOCABULARY = Vocabulary(**SPECIAL, regular=REGULAR)
SYNONYMS_FROM = 1000  # pieces from here on stand in synonyms only
ENTRIES = 50


@lru_cache
def make_rows(
    count: int,
    segments: int = 1,
    *,
    filled: int = 60,
    covered: float = 0.4,
    lengths: tuple[int, ...] = (1, 1, 1, 2, 3),
) -> Rows:
    """Rows of `filled` tokens at most, special tokens included; `covered` of the words have an entry.

    In pairs each word of the first side is aligned with some word of the second.
    """
    random = np.random.default_rng(0)
    word_length: list[int] = []
    segment_words: list[int] = []
    row_segments: list[int] = []
    for _ in range(count):
        room, here = filled, 0
        while room >= 8 * segments:
            room -= 1
            for _ in range(segments):
                words = random.choice(lengths, random.integers(2, 12)).tolist()
                while sum(words) > max(2, room // segments - 1):
                    words.pop()
                room -= sum(words) + 1
                word_length += words
                segment_words.append(len(words))
                here += 1
        row_segments.append(here)
    total = len(word_length)
    rows = Rows(
        pieces=random.choice(REGULAR, sum(word_length)),
        word_length=np.asarray(word_length, np.int32),
        entry=np.where(random.random(total) < covered, random.integers(0, ENTRIES, total), -1).astype(np.int32),
        segment_words=np.asarray(segment_words, np.int32),
        segment_language=random.integers(0, 3, len(segment_words)).astype(np.int32),
        row_segments=np.asarray(row_segments, np.int32),
        segment_links=np.zeros(len(segment_words), np.int32),
        link_from=np.zeros(0, np.int32),
        link_to=np.zeros(0, np.int32),
    )
    return _link(rows, random) if segments == 2 else rows


def _link(rows: Rows, random: np.random.Generator) -> Rows:
    first, second = rows.segment_words[::2], rows.segment_words[1::2]
    segment_links = np.stack((first, np.zeros_like(first)), axis=1).ravel()
    link_from = np.concatenate([np.arange(words, dtype=np.int32) for words in first])
    link_to = random.integers(0, np.repeat(second, first)).astype(np.int32)
    return replace(rows, segment_links=segment_links, link_from=link_from, link_to=link_to)


def make_lexicon(seed: int = 0, longest: int = 4) -> Lexicon:
    """ENTRIES entries with 1 to 3 languages of 1 to 3 synonyms of up to `longest` pieces."""
    random = np.random.default_rng(seed)
    entry_groups = random.integers(1, 4, ENTRIES)
    group_synonyms = random.integers(1, 4, entry_groups.sum())
    synonym_length = random.integers(1, longest + 1, group_synonyms.sum())
    arrays = (
        entry_groups,
        random.integers(3, 6, len(group_synonyms)),
        group_synonyms,
        synonym_length,
        random.integers(SYNONYMS_FROM, 2000, synonym_length.sum()),
    )
    return Lexicon(*(array.astype(np.int32) for array in arrays))


def make_context(
    masking: MaskingConfig | None = None, *, max_seq_length: int = 60, seed: int = 0, global_rows: int = 1
) -> StreamContext:
    """A context with the random lexicon."""
    return StreamContext(seed, masking or MaskingConfig(), VOCABULARY, make_lexicon(), max_seq_length, global_rows)


def assert_chance(hits: int, trials: int, share: float) -> None:
    """The hits are within 4.5 standard deviations of what chance gives; the seed is fixed, so this never flickers."""
    assert abs(hits - trials * share) <= 4.5 * np.sqrt(trials * share * (1 - share)), (hits / trials, share, trials)
