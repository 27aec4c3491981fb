"""Rows as flat arrays: pieces in words, words in segments, segments in examples, examples in rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Index = NDArray[np.int64]

NO_ENTRY = -1  # the word is not in the dictionary
NO_WORD = -2  # punctuation, or a later piece of a word that was split: not in the dictionary, nor counted as a word


@dataclass(frozen=True)
class Rows:
    """A batch of packed rows without special tokens; an example is one segment (text) or two (a translation).

    pieces [T] piece ids; word_length [W] pieces of each word; entry [W] dictionary entry of each word or NO_ENTRY;
    segment_words [S] words of each segment; segment_language [S] language id of each segment; row_segments [N] segments
    of each row. Word alignment: segment_links [S] links of each segment as their source; link_from [K] a word of the
    source, link_to [K] a word of the other segment of its example, both counted from 0 within their segment. Of a
    pair's segments the source of all its links is the one that was first when prepare wrote it, wherever
    `reorder_segments` puts it; text has none. A teacher's vectors: segment_vector [S] numbers that a segment brings,
    vector [V] those of all segments, as `teacher_vectors.as_ints` writes them; none where there is no teacher.
    """

    pieces: Ints
    word_length: Ints
    entry: Ints
    segment_words: Ints
    segment_language: Ints
    row_segments: Ints
    segment_links: Ints
    link_from: Ints
    link_to: Ints
    segment_vector: Ints = field(default=None)  # type: ignore[assignment]  # as many zeros as segments
    vector: Ints = field(default=None)  # type: ignore[assignment]  # empty

    def __post_init__(self) -> None:
        if self.segment_vector is None:
            object.__setattr__(self, "segment_vector", np.zeros_like(self.segment_words))
            object.__setattr__(self, "vector", np.zeros(0, np.int32))

    def __len__(self) -> int:
        return len(self.row_segments)


def starts(lengths: NDArray[np.integer]) -> Index:
    """Where each of consecutive runs begins: the exclusive cumulative sum."""
    ends = np.cumsum(lengths, dtype=np.int64)
    return ends - lengths


def spans(first: NDArray[np.integer], lengths: NDArray[np.integer]) -> Index:
    """Concatenates the ranges [first, first + length): the gather index of ragged runs."""
    lengths = lengths.astype(np.int64)
    return np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(first - starts(lengths), lengths)


def run_index(lengths: NDArray[np.integer]) -> Index:
    """For each member of consecutive runs, the number of the run that owns it."""
    return np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)


def sum_runs(values: NDArray[np.integer], lengths: NDArray[np.integer]) -> Index:
    """Sum of the values of each run; empty runs give 0."""
    total = np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
    first = starts(lengths)
    return total[first + lengths] - total[first]


def take(rows: Rows, chosen: NDArray[np.integer]) -> Rows:
    """The chosen rows, in the order given; a row may be taken more than once."""
    segments = spans(starts(rows.row_segments)[chosen], rows.row_segments[chosen])
    return take_segments(rows, segments, rows.row_segments[chosen])


def reorder_segments(rows: Rows, segments: NDArray[np.integer]) -> Rows:
    """The same rows with their segments in another order."""
    return take_segments(rows, segments, rows.row_segments)


def take_segments(rows: Rows, segments: NDArray[np.integer], row_segments: Ints) -> Rows:
    """Rows of the chosen segments, in the order given; row_segments [N] says how many of them make each row."""
    words = spans(starts(rows.segment_words)[segments], rows.segment_words[segments])
    pieces = spans(starts(rows.word_length)[words], rows.word_length[words])
    links = spans(starts(rows.segment_links)[segments], rows.segment_links[segments])
    numbers = spans(starts(rows.segment_vector)[segments], rows.segment_vector[segments])
    return Rows(
        pieces=rows.pieces[pieces],
        word_length=rows.word_length[words],
        entry=rows.entry[words],
        segment_words=rows.segment_words[segments],
        segment_language=rows.segment_language[segments],
        row_segments=row_segments,
        segment_links=rows.segment_links[segments],
        link_from=rows.link_from[links],
        link_to=rows.link_to[links],
        segment_vector=rows.segment_vector[segments],
        vector=rows.vector[numbers],
    )


def split_rows(rows: Rows, size: int) -> Iterator[Rows]:
    """Batches of at most `size` consecutive rows, without copies; together they are the rows."""
    bounds = [np.concatenate(([0], np.cumsum(lengths))) for lengths in (rows.row_segments, rows.segment_words)]
    word_bounds = np.concatenate(([0], np.cumsum(rows.word_length, dtype=np.int64)))
    link_bounds = np.concatenate(([0], np.cumsum(rows.segment_links, dtype=np.int64)))
    vector_bounds = np.concatenate(([0], np.cumsum(rows.segment_vector, dtype=np.int64)))
    for begin in range(0, len(rows), size):
        row = slice(begin, min(begin + size, len(rows)))
        segment = slice(*bounds[0][[row.start, row.stop]])
        word = slice(*bounds[1][[segment.start, segment.stop]])
        piece = slice(*word_bounds[[word.start, word.stop]])
        link = slice(*link_bounds[[segment.start, segment.stop]])
        yield Rows(
            pieces=rows.pieces[piece],
            word_length=rows.word_length[word],
            entry=rows.entry[word],
            segment_words=rows.segment_words[segment],
            segment_language=rows.segment_language[segment],
            row_segments=rows.row_segments[row],
            segment_links=rows.segment_links[segment],
            link_from=rows.link_from[link],
            link_to=rows.link_to[link],
            segment_vector=rows.segment_vector[segment],
            vector=rows.vector[slice(*vector_bounds[[segment.start, segment.stop]])],
        )


def concatenate(parts: Sequence[Rows]) -> Rows:
    """Rows of several batches, one after the other; no part gives no row."""
    if not parts:
        return Rows(*(np.zeros(0, np.int32) for _ in fields(Rows)))
    return Rows(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Rows)))
