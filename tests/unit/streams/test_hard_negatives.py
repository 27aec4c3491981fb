"""Hard negatives in rows of pairs: what each sentence brings, how long it is, and that it follows its sentence."""

from __future__ import annotations

import numpy as np

from xalign_ray.shards.rows import (
    Rows,
    negatives_of,
    one_negative,
    reorder_segments,
    with_given_negatives,
    with_negatives,
)

SENTENCES = [[10, 11, 12], [20, 21], [30], [40, 41, 42, 43], [50, 51], [60, 61, 62]]  # of three pairs, in turn


def pairs() -> Rows:
    """A row a pair; words of one piece, and in the last sentence one of two."""
    length = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]
    words = [3, 2, 1, 4, 2, 2]
    zeros, none = np.zeros(6, np.int32), np.zeros(0, np.int32)
    return Rows(
        pieces=np.concatenate(SENTENCES).astype(np.int32),
        word_length=np.array(length, np.int32),
        entry=np.full(14, -1, np.int32),
        segment_words=np.array(words, np.int32),
        segment_language=np.array([0, 1] * 3, np.int32),
        row_segments=np.full(3, 2, np.int32),
        segment_links=zeros,
        link_from=none,
        link_to=none,
    )


def pieces_of(rows: Rows) -> list[list[int]]:
    return [part.tolist() for part in np.split(rows.pieces, np.cumsum(rows.segment_words)[:-1])]


def test_each_sentence_brings_a_sentence_of_the_other_side_as_long_as_its_translation() -> None:
    rows = with_negatives(pairs(), np.array([1, 2, -1]), np.array([2, 0, 1]))
    keys, queries = negatives_of(rows, 0), negatives_of(rows, 1)
    # 40 41 42 43 is cut to the length of 20 21; the third pair has none, so its own translation stands there.
    assert pieces_of(keys) == [[40, 41], [60, 61, 62], [60, 61, 62]]
    assert pieces_of(queries) == [[50, 51], [10], [30]]
    assert keys.segment_language.tolist() == [1, 1, 1]
    assert queries.segment_language.tolist() == [0, 0, 0]
    assert keys.row_segments.tolist() == [1, 1, 1]


def test_negatives_follow_their_sentences_into_another_order() -> None:
    rows = with_negatives(pairs(), np.array([1, 2, -1]), np.array([2, 0, 1]))
    swapped = reorder_segments(rows, np.array([1, 0, 2, 3, 5, 4]))  # the first and the last pair
    assert pieces_of(negatives_of(swapped, 0)) == [[50, 51], [60, 61, 62], [30]]
    assert pieces_of(negatives_of(swapped, 1)) == [[40, 41], [10], [60, 61, 62]]
    assert negatives_of(swapped, 0).segment_language.tolist() == [0, 1, 0]


def test_of_given_negatives_each_query_keeps_one_that_is_drawn() -> None:
    given = [[[1, 2, 3], [4]], [], [[5, 6], [7, 8, 9, 10], [1]]]  # of the three pairs
    flat = [negative for some in given for negative in some]
    pieces, lengths = np.concatenate(flat).astype(np.int32), np.array([len(one) for one in flat])
    rows = with_given_negatives(pairs(), pieces, lengths, np.array([2, 0, 3]))
    second = SENTENCES[1::2]
    for draw in np.arange(0.05, 1, 0.1):
        kept = one_negative(rows, np.full(6, draw))
        expected = [
            some[int(draw * len(some))][: len(own)] if some else own for some, own in zip(given, second, strict=True)
        ]
        assert pieces_of(negatives_of(kept, 0)) == expected
        assert len(negatives_of(kept, 1).pieces) == 0
    reordered = reorder_segments(rows, np.array([4, 5, 2, 3, 0, 1]))
    kept = one_negative(reordered, np.array([0.9, 0, 0, 0, 0.1, 0]))
    assert pieces_of(negatives_of(kept, 0)) == [[1], second[1], [1, 2]]
