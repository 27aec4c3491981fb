"""Random rows, dictionaries and settings for the comparison of streams with the slow ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from tests.parity.slow_streams import Dictionary, Example, Group, Row, Segment, Slow, Word, as_lexicon, as_rows
from xalign_ray.config.choices import Stream
from xalign_ray.config.schema import MaskingConfig
from xalign_ray.streams.collate import Columns, Vocabulary
from xalign_ray.streams.prediction import StreamContext, stream_columns

ROW_TOKENS = 40
ENTRIES = 20
VOCABULARY = Vocabulary(pad=0, cls=2, sep=3, mask=4, unknown=1, regular=np.arange(5, 90, dtype=np.int32))

S = TypeVar("S", bound=Slow)

ALWAYS_MASK = MaskingConfig(mlm_probability=0.99, mask_replace_prob=1, random_replace_prob=0)
ALWAYS_KEEP = MaskingConfig(mlm_probability=0.99, mask_replace_prob=0, random_replace_prob=0)


def _make_dictionary(random: np.random.Generator) -> Dictionary:
    def synonym() -> list[int]:
        return [int(piece) for piece in random.integers(100, 200, random.integers(1, 5))]

    def groups() -> list[Group]:
        languages = random.permutation(4)[: random.integers(1, 4)]
        return [Group(int(language), [synonym() for _ in range(random.integers(1, 4))]) for language in languages]

    return [groups() for _ in range(ENTRIES)]


def _example(random: np.random.Generator, segments: int, room: int) -> Example | None:
    example: Example = []
    left = room - 1
    for _ in range(segments):
        words: list[Word] = []
        left -= 1
        for _ in range(random.integers(1, 9)):
            length = int(random.choice([1, 1, 1, 2, 3, 6]))
            if left - length < 0:
                break
            left -= length
            entry = int(random.integers(0, ENTRIES)) if random.random() < 0.6 else -1
            words.append(Word([int(piece) for piece in random.integers(5, 90, length)], entry))
        if not words:
            return None
        example.append(Segment(int(random.integers(0, 4)), words))
    return example


def make_rows(count: int, segments: int, *, filled: int = ROW_TOKENS) -> list[Row]:
    """Rows from nearly empty to full to the last token that may be `filled`: examples until one does not fit."""
    random = np.random.default_rng(7)
    rows = []
    while len(rows) < count:
        row: Row = []
        room = filled - int(random.integers(0, 10))
        while (example := _example(random, segments, room)) is not None:
            row.append(example)
            room -= 1 + sum(1 + sum(len(word.pieces) for word in segment.words) for segment in example)
        rows += [row] if row else []
    return rows


def link(rows: list[Row]) -> list[Row]:
    """Pairs with random word alignments, from none to all words with all; the first sides own them."""
    random = np.random.default_rng(13)
    for row in rows:
        for first, second in row:
            share = random.choice([0, 0.2, 0.5, 1])
            every = [(i, j) for i in range(len(first.words)) for j in range(len(second.words))]
            first.links = [pair for pair in every if random.random() < share]
    return rows


def make_settings(
    slow: Callable[..., S], seed: int, rate: float, *, whole_word: bool = True, max_seq_length: int = ROW_TOKENS
) -> tuple[S, StreamContext]:
    """A slow stream and the context of the stream that must equal it."""
    dictionary = _make_dictionary(np.random.default_rng(3))
    masking = MaskingConfig(mlm_probability=rate, whole_word_mask=whole_word)
    context = StreamContext(seed, masking, VOCABULARY, as_lexicon(dictionary), max_seq_length, global_rows=1)
    return slow(seed, VOCABULARY, dictionary, max_seq_length, rate=rate, whole_word=whole_word), context


def assert_equal(found: Columns, wanted: list[dict]) -> None:
    """All columns and no others, number for number."""
    assert set(found) == set(wanted[0])
    for name in found:
        expected = np.asarray([one[name] for one in wanted], found[name].dtype)
        np.testing.assert_array_equal(found[name], expected, err_msg=name)


def view_one(stream: Stream, row: Row, masking: MaskingConfig, dictionary: Dictionary, max_seq_length: int) -> dict:
    """The columns of one row as plain lists and numbers."""
    context = StreamContext(0, masking, VOCABULARY, as_lexicon(dictionary), max_seq_length, global_rows=1)
    columns = stream_columns(stream, as_rows([row]), np.array([0]), context)
    return {name: values[0].tolist() for name, values in columns.items()}
