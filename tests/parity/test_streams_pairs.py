"""The streams for word exchange and contrast: equal to the slow ones, and worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.parity.slow_pairs import SlowPairs, hash_segment
from tests.parity.slow_streams import Row, Segment, Word, as_rows
from tests.parity.stream_cases import (
    ALWAYS_KEEP,
    ALWAYS_MASK,
    ROW_TOKENS,
    assert_equal,
    link,
    make_rows,
    make_settings,
    view_one,
)
from xalign_ray.config.choices import AlignedPairs, ContrastedPairs, MaskedTranslations
from xalign_ray.streams.prediction import Prompt, stream_columns

WHOLE_WORD = pytest.mark.parametrize("whole_word", [True, False])


@WHOLE_WORD
@pytest.mark.parametrize("expand", ["all", "first", "diagonal"])
@pytest.mark.parametrize(("where", "segments", "random_order"), [("running", False, False), ("reset", True, True)])
def test_aligned_pairs_equal_the_slow_view(
    expand: str, where: str, segments: bool, random_order: bool, whole_word: bool
) -> None:
    slow, context = make_settings(SlowPairs, 31, 0.3, whole_word=whole_word)
    rows, positions = link(make_rows(60, 2)), np.arange(60) * 5
    stream = AlignedPairs(expand=expand, positions=where, segments=segments, random_order=random_order)  # type: ignore[arg-type]
    found = stream_columns(stream, as_rows(rows), positions, context)
    options = {"reset": where == "reset", "segments": segments, "random_order": random_order}
    wanted = [slow.aligned_pairs(row, int(p), expand=expand, **options) for row, p in zip(rows, positions, strict=True)]
    assert_equal(found, wanted)
    assert found["aligned"].shape == (60, ROW_TOKENS, ROW_TOKENS // 8)
    assert max(len(row) for row in rows) > 2


def test_a_row_length_that_is_no_multiple_of_8_is_padded_with_bits() -> None:
    slow, context = make_settings(SlowPairs, 31, 0.3, max_seq_length=45)
    rows = link(make_rows(20, 2))
    found = stream_columns(AlignedPairs(), as_rows(rows), np.arange(20), context)
    options = {"reset": False, "segments": False, "random_order": False}
    assert_equal(found, [slow.aligned_pairs(row, p, expand="all", **options) for p, row in enumerate(rows)])
    assert found["aligned"].shape == (20, 45, 6)


@WHOLE_WORD
@pytest.mark.parametrize("text", ["joined", "apart", "none"])
@pytest.mark.parametrize("random_order", [True, False])
def test_contrasted_pairs_equal_the_slow_view(text: str, random_order: bool, whole_word: bool) -> None:
    slow, context = make_settings(SlowPairs, 37, 0.3, whole_word=whole_word, max_seq_length=48)
    rows, positions = make_rows(100, 2), np.arange(100) + 2**33
    stream = ContrastedPairs(text=text, random_order=random_order)  # type: ignore[arg-type]
    found = stream_columns(stream, as_rows(rows), positions, context)
    options = {"reset": False, "segments": True, "random_order": random_order}
    wanted = [slow.contrasted_pairs(row, int(p), text=text, **options) for row, p in zip(rows, positions, strict=True)]
    assert_equal(found, wanted)
    assert ((found["labels"] >= 0).sum() == 0) == (text == "none")


@WHOLE_WORD
@pytest.mark.parametrize("random_order", [True, False])
@pytest.mark.parametrize(("where", "segments"), [("running", True), ("reset", False)])
def test_masked_translations_equal_the_slow_view(
    where: str, segments: bool, random_order: bool, whole_word: bool
) -> None:
    slow, context = make_settings(SlowPairs, 41, 0.3, whole_word=whole_word)
    rows, positions = link(make_rows(100, 2)), np.arange(100) * 3 + 2**33
    stream = MaskedTranslations(positions=where, segments=segments, random_order=random_order)  # type: ignore[arg-type]
    found = stream_columns(stream, as_rows(rows), positions, context)
    options = {"reset": where == "reset", "segments": segments, "random_order": random_order}
    wanted = [slow.masked_translations(row, int(p), **options) for row, p in zip(rows, positions, strict=True)]
    assert_equal(found, wanted)
    assert (found["cross_lingual"] == (found["labels"] >= 0).sum(axis=1)).all()


BEHIND = {  # how the first word of a sentence is cut behind 91 92
    "alike": lambda word: [91, 92, *word],
    "otherwise": lambda word: [91, 92, word[0] + 100, *word[1:]],
    "longer": lambda word: [91, 92, *([93] if word[0] % 2 else []), *word],
    "shorter": lambda word: [91, word[0] + 100, *word[1:]],
}


@pytest.mark.parametrize("random_order", [True, False])
@pytest.mark.parametrize("behind", BEHIND)
def test_a_prompt_stands_before_each_sentence_alone_and_not_before_the_masked_pair(
    behind: str, random_order: bool
) -> None:
    slow, context = make_settings(SlowPairs, 43, 0.3)
    prompt, asked = [91, 92], "query: "  # rows need no reserve for two pieces
    context = replace(context, prompts={asked: Prompt(np.array(prompt, np.int32), BEHIND[behind])})
    rows, positions = make_rows(100, 2), np.arange(100)
    found = stream_columns(ContrastedPairs(prompt=asked, random_order=random_order), as_rows(rows), positions, context)
    options = {"reset": False, "segments": True, "random_order": random_order}
    wanted = [
        slow.contrasted_pairs(row, int(p), text="joined", prompt=prompt, before=BEHIND[behind], **options)
        for row, p in zip(rows, positions, strict=True)
    ]
    assert_equal(found, wanted)
    assert not np.isin(found["input_ids"], prompt).any()


# --- by hand ---------------------------------------------------------------------------------------------------------
def one_word(language: int, *pieces: int) -> Segment:
    return Segment(language, [Word(list(pieces), -1)])


def linked_row() -> Row:
    """Two pairs: `10+11 12 | 20 21+22+23` with links 0-1 and 1-0, and `30 | 31` with 0-0."""
    first = Segment(0, [Word([10, 11], -1), Word([12], -1)], [(0, 1), (1, 0)])
    second = Segment(1, [Word([20], -1), Word([21, 22, 23], -1)])
    return [[first, second], [Segment(0, [Word([30], -1)], [(0, 0)]), one_word(2, 31)]]


# [CLS] 10 11 12 [SEP] 20 21 22 23 [SEP] [CLS] 30 [SEP] 31 [SEP]
#   0    1  2  3   4    5  6  7  8   9    10   11   12  13   14
ONE_TO_ONE = {(3, 5), (11, 13)}
EXPANDED = {
    "all": ONE_TO_ONE | {(1, 6), (1, 7), (1, 8), (2, 6), (2, 7), (2, 8)},
    "first": ONE_TO_ONE | {(1, 6)},
    "diagonal": ONE_TO_ONE | {(1, 6), (2, 7)},
}


@WHOLE_WORD
@pytest.mark.parametrize("expand", list(EXPANDED))
def test_links_become_pairs_of_positions(expand: str, whole_word: bool) -> None:
    masking = ALWAYS_KEEP.model_copy(update={"whole_word_mask": whole_word})
    found = view_one(AlignedPairs(expand=expand), linked_row(), masking, [], 17)  # type: ignore[arg-type]
    assert found["input_ids"] == [2, 10, 11, 12, 3, 20, 21, 22, 23, 3, 2, 30, 3, 31, 3, 0, 0]
    assert found["position_ids"] == [*range(10), *range(5), 0, 0], "positions run on by default"
    assert found["segment_ids"] == [0] * 17
    matrix = np.unpackbits(np.array(found["aligned"], np.uint8), axis=-1, bitorder="little")
    assert matrix.shape == (17, 24)
    assert {(int(i), int(j)) for i, j in np.argwhere(matrix)} == EXPANDED[expand] | {
        (j, i) for i, j in EXPANDED[expand]
    }


def test_bits_are_packed_from_the_lowest() -> None:
    row: Row = [[Segment(0, [Word([10], -1)], [(0, 0)]), one_word(1, 11)]]  # [CLS] 10 [SEP] 11 [SEP]
    found = view_one(AlignedPairs(), row, ALWAYS_KEEP, [], 8)
    assert found["aligned"] == [[0], [0b1000], [0], [0b10], [0], [0], [0], [0]]


def test_links_stay_with_their_words_when_the_second_side_owns_them() -> None:
    row: Row = [[one_word(1, 20, 21), Segment(0, [Word([10], -1), Word([11], -1)], [(1, 0)])]]
    found = view_one(AlignedPairs(), row, ALWAYS_KEEP, [], 8)  # [CLS] 20 21 [SEP] 10 11 [SEP]
    assert found["aligned"] == [[0], [1 << 5], [1 << 5], [0], [0], [0b110], [0], [0]]


PAIRS: Row = [[one_word(0, 10, 11), one_word(1, 20)], [one_word(0, 12), one_word(2, 21, 22)]]


def test_query_and_key_by_hand() -> None:
    found = view_one(ContrastedPairs(random_order=False), PAIRS, ALWAYS_MASK, [], 13)
    assert found["input_ids"] == [2, 4, 4, 3, 4, 3, 2, 4, 3, 4, 4, 3, 0]
    assert found["labels"] == [-100, 10, 11, -100, 20, -100, -100, 12, -100, 21, 22, -100, -100]
    assert found["position_ids"] == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0]
    assert found["segment_ids"] == [0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0]
    assert found["query_input_ids"] == [2, 10, 11, 3, 2, 12, 3, 0, 0, 0, 0, 0, 0]
    assert found["query_example_ids"] == [1, 1, 1, 1, 2, 2, 2, 0, 0, 0, 0, 0, 0]
    assert found["query_language_ids"] == [0] * 13
    assert found["key_input_ids"] == [2, 20, 3, 2, 21, 22, 3, 0, 0, 0, 0, 0, 0]
    assert found["key_position_ids"] == [0, 1, 2, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0]
    assert found["key_language_ids"] == [1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0]
    assert found["key_segment_ids"] == [0] * 13
    one, two = hash_segment(PAIRS[0][0]), hash_segment(PAIRS[1][0])
    assert found["pair_hash"] == [one, 0, 0, two, 0, 0, 0, 0, 0, 0, 0, 0, 0]


def test_words_asked_of_the_other_sentence_by_hand() -> None:
    """Three of the pair's 9 tokens are asked, all of the second side; the word that is not asked is not there."""
    row: Row = [[one_word(0, 10, 11), Segment(1, [Word([piece], -1) for piece in (20, 21, 22, 23)])]]
    masking = ALWAYS_KEEP.model_copy(update={"mlm_probability": 0.3})  # "always keep" is not heeded: masks alone
    found = view_one(MaskedTranslations(random_order=False), row, masking, [], 10)
    asked = [label for label in found["labels"] if label != -100]
    place = {20: 1, 21: 2, 22: 3, 23: 4}
    assert len(asked) == 3
    assert found["input_ids"] == [2, 10, 11, 3, 4, 4, 4, 3, 0, 0]
    assert found["labels"] == [-100] * 4 + asked + [-100] * 3
    assert found["position_ids"] == [0, 1, 2, 3, *(place[label] for label in asked), 5, 0, 0]
    assert found["language_ids"] == [0, 0, 0, 0, 1, 1, 1, 1, 0, 0]
    assert found["example_ids"] == [1] * 8 + [0] * 2
    running = view_one(MaskedTranslations(random_order=False, positions="running"), row, masking, [], 10)
    assert running["position_ids"] == [0, 1, 2, 3, *(3 + place[label] for label in asked), 8, 0, 0]


def test_a_pair_of_two_pieces_needs_no_more_room_than_itself() -> None:
    row: Row = [[one_word(0, 10), one_word(1, 20)]] * 3
    found = view_one(MaskedTranslations(), row, ALWAYS_MASK, [], 15)
    assert [label for label in found["labels"] if label != -100] == found["labels"][3::5]
    assert found["input_ids"][:5] in ([2, 10, 3, 4, 3], [2, 20, 3, 4, 3])


def test_sentences_apart_are_masked_as_text() -> None:
    found = view_one(ContrastedPairs(random_order=False, text="apart"), PAIRS, ALWAYS_MASK, [], 14)
    assert found["input_ids"] == [2, 4, 4, 3, 2, 4, 3, 2, 4, 3, 2, 4, 4, 3]
    assert found["example_ids"] == [1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4]
    assert found["segment_ids"] == [0] * 14
    assert found["key_input_ids"] == [2, 20, 3, 2, 21, 22, 3, *[0] * 7]


def test_no_text_is_the_pair_with_nothing_masked() -> None:
    found = view_one(ContrastedPairs(random_order=False, text="none"), PAIRS, ALWAYS_MASK, [], 12)
    assert found["input_ids"] == [2, 10, 11, 3, 20, 3, 2, 12, 3, 21, 22, 3]
    assert found["labels"] == [-100] * 12


def test_the_hash_is_that_of_the_sentence_and_of_nothing_else() -> None:
    """Pairs that share their first-written sentence share the hash, whichever way round, in any row, masked or not."""
    rows: list[Row] = [[[one_word(0, 10, 11), one_word(1, 20 + n)]] for n in range(40)]
    rows += [[[one_word(0, 11, 10), one_word(1, 20)]], [[one_word(0, 10), one_word(1, 20)]]]
    _, context = make_settings(SlowPairs, 0, 0.3)
    found = stream_columns(ContrastedPairs(), as_rows(rows), np.arange(42), context)
    hashes = found["pair_hash"][found["pair_hash"] != 0]
    assert len(hashes) == 42
    assert len(np.unique(hashes[:40])) == 1
    assert len(np.unique(hashes)) == 3
    first = found["query_language_ids"][:40, 0]
    assert set(first.tolist()) == {0, 1}, "some pairs are swapped, some are not"
    assert (found["language_ids"][:40, 0] == first).all(), "the masked pair and the query begin with the same sentence"
