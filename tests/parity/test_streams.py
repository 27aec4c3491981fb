"""Every stream equals the slow one, number for number, and tiny cases worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.parity.slow_streams import Group, Row, Segment, Slow, Word, as_lexicon, as_rows, splitmix
from tests.parity.stream_cases import (
    ALWAYS_KEEP,
    ALWAYS_MASK,
    ROW_TOKENS,
    VOCABULARY,
    assert_equal,
    make_rows,
    make_settings,
    view_one,
)
from xalign_ray.config.choices import (
    AlignedPairs,
    CodeSwitchedCopy,
    CodeSwitchedLabels,
    ContrastedPairs,
    MaskedPairs,
    MaskedText,
    MaskedTranslations,
    Stream,
)
from xalign_ray.config.schema import MaskingConfig
from xalign_ray.shards.counter_random import splitmix64
from xalign_ray.streams.prediction import StreamContext, no_rows, stream_columns

RATES = (0.15, 0.5)


@pytest.mark.parametrize("whole_word", [True, False])
@pytest.mark.parametrize("rate", RATES)
def test_masked_text_equals_the_slow_view(rate: float, whole_word: bool) -> None:
    slow, context = make_settings(Slow, 11, rate, whole_word=whole_word)
    rows, positions = make_rows(150, 1), np.arange(150) * 7 + 1000
    found = stream_columns(MaskedText(), as_rows(rows), positions, context)
    assert_equal(found, [slow.masked_text(row, int(p)) for row, p in zip(rows, positions, strict=True)])


@pytest.mark.parametrize("where", ["reset", "running"])
@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("random_order", [True, False])
@pytest.mark.parametrize("double", [True, False])
def test_masked_pairs_equals_the_slow_view(where: str, segments: bool, random_order: bool, double: bool) -> None:
    slow, context = make_settings(Slow, 0, 0.3, max_seq_length=48 if double else ROW_TOKENS)
    rows, positions = make_rows(100, 2), np.arange(100) + 2**40
    assert max(len(row) for row in rows) < 9, "rows of 40 tokens have 8 pairs at most, so 48 hold a token more for each"
    stream = MaskedPairs(positions=where, segments=segments, random_order=random_order, double_separator=double)  # type: ignore[arg-type]
    options = {"reset": where == "reset", "segments": segments, "random_order": random_order, "double": double}
    found = stream_columns(stream, as_rows(rows), positions, context)
    assert_equal(found, [slow.masked_pairs(row, int(p), **options) for row, p in zip(rows, positions, strict=True)])


@pytest.mark.parametrize("whole_word", [True, False])
@pytest.mark.parametrize("unit", ["word", "instance"])
@pytest.mark.parametrize("rate", RATES)
def test_code_switched_labels_equals_the_slow_view(rate: float, unit: str, whole_word: bool) -> None:
    slow, context = make_settings(Slow, 5, rate, whole_word=whole_word)
    rows, positions = make_rows(120, 1), np.arange(120) * 3
    found = stream_columns(CodeSwitchedLabels(t=0.7, mix_unit=unit), as_rows(rows), positions, context)  # type: ignore[arg-type]
    options = {"t": 0.7, "instance": unit == "instance"}
    wanted = [slow.code_switched_labels(row, int(p), **options) for row, p in zip(rows, positions, strict=True)]
    assert_equal(found, wanted)
    assert found["cross_lingual"].sum() > 100
    lacking = frozenset({0, 2})  # of the four languages
    slow.no_dictionary = lacking
    found = stream_columns(
        CodeSwitchedLabels(t=0.7, mix_unit=unit),  # type: ignore[arg-type]
        as_rows(rows),
        positions,
        replace(context, no_dictionary=lacking),
    )
    again = [slow.code_switched_labels(row, int(p), **options) for row, p in zip(rows, positions, strict=True)]
    assert_equal(found, again)
    assert (again == wanted) == (unit == "word"), "by word a word without an entry is plainly masked anyway"
    if rate > 0.4 and whole_word:
        assert found["no_room"].sum() > 10, "the rows are meant to be full enough that some synonyms do not fit"


def test_the_generator_is_splitmix64() -> None:
    assert int(splitmix64(np.zeros(1, np.uint64))[0]) == splitmix(0) == 0xE220A8397B1DCDAF  # the published first output
    values = np.random.default_rng(0).integers(0, 2**64, 100, dtype=np.uint64)
    assert [int(v) for v in splitmix64(values)] == [splitmix(int(v)) for v in values]


# --- by hand: rows so small, and shares so extreme, that nothing is left to chance -----------------------------------
def test_two_sentences_in_a_row_by_hand() -> None:
    row: Row = [[Segment(1, [Word([10, 11], -1)])], [Segment(2, [Word([12], -1)])]]
    found = view_one(MaskedText(), row, ALWAYS_MASK, [], 9)
    assert found["input_ids"] == [2, 4, 4, 3, 2, 4, 3, 0, 0]
    assert found["labels"] == [-100, 10, 11, -100, -100, 12, -100, -100, -100]
    assert found["position_ids"] == [0, 1, 2, 3, 0, 1, 2, 0, 0]
    assert found["language_ids"] == [1, 1, 1, 1, 2, 2, 2, 0, 0]
    assert found["example_ids"] == [1, 1, 1, 1, 2, 2, 2, 0, 0]
    assert found["segment_ids"] == [0] * 9


@pytest.mark.parametrize(("where", "places"), [("reset", [0, 1, 2, 1, 2, 3]), ("running", [0, 1, 2, 3, 4, 5])])
def test_a_pair_by_hand(where: str, places: list[int]) -> None:
    row: Row = [[Segment(0, [Word([10], -1)]), Segment(3, [Word([11], -1), Word([12], -1)])]]
    stream = MaskedPairs(positions=where, segments=True)  # type: ignore[arg-type]
    found = view_one(stream, row, ALWAYS_MASK, [], 8)
    assert found["input_ids"] == [2, 4, 3, 4, 4, 3, 0, 0]
    assert found["labels"] == [-100, 10, -100, 11, 12, -100, -100, -100]
    assert found["position_ids"] == [*places, 0, 0]
    assert found["segment_ids"] == [0, 0, 0, 1, 1, 1, 0, 0]
    assert found["language_ids"] == [0, 0, 0, 3, 3, 3, 0, 0]
    assert found["example_ids"] == [1, 1, 1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize(("where", "places"), [("reset", [0, 1, 2, 0, 1, 2, 3]), ("running", [0, 1, 2, 3, 4, 5, 6])])
def test_a_pair_with_four_separators_by_hand(where: str, places: list[int]) -> None:
    """XLM's row: `</s> a </s> </s> b </s>`, the second half as if it stood alone."""
    row: Row = [[Segment(0, [Word([10], -1)]), Segment(3, [Word([11], -1), Word([12], -1)])]]
    stream = MaskedPairs(positions=where, segments=True, double_separator=True)  # type: ignore[arg-type]
    found = view_one(stream, row, ALWAYS_MASK, [], 8)
    assert found["input_ids"] == [2, 4, 3, 3, 4, 4, 3, 0]
    assert found["labels"] == [-100, 10, -100, -100, 11, 12, -100, -100]
    assert found["position_ids"] == [*places, 0]
    assert found["segment_ids"] == [0, 0, 0, 1, 1, 1, 1, 0]
    assert found["language_ids"] == [0, 0, 0, 3, 3, 3, 3, 0]
    assert found["example_ids"] == [1, 1, 1, 1, 1, 1, 1, 0]


LONGER = [[Group(2, [[50, 51, 52]])]]
EQUAL = [[Group(2, [[50, 51]])]]


def test_a_slot_is_as_long_as_its_label() -> None:
    found = view_one(CodeSwitchedLabels(t=1), [[Segment(1, [Word([10, 11], 0)])]], ALWAYS_MASK, LONGER, 6)
    assert found["input_ids"] == [2, 4, 4, 4, 3, 0]
    assert found["labels"] == [-100, 50, 51, 52, -100, -100]
    assert found["language_ids"] == [1, 2, 2, 2, 1, 0]
    assert found["position_ids"] == [0, 1, 2, 3, 4, 0]
    assert (found["cross_lingual"], found["no_room"]) == (3, 0)


def test_a_label_without_room_falls_back_to_the_word() -> None:
    found = view_one(CodeSwitchedLabels(t=1), [[Segment(1, [Word([10, 11], 0)])]], ALWAYS_MASK, LONGER, 4)
    assert found["input_ids"] == [2, 4, 4, 3]
    assert found["labels"] == [-100, 10, 11, -100]
    assert found["language_ids"] == [1, 1, 1, 1]
    assert (found["cross_lingual"], found["no_room"]) == (0, 1)


def test_a_kept_slot_shows_the_source_word() -> None:
    found = view_one(CodeSwitchedLabels(t=1), [[Segment(1, [Word([10, 11], 0)])]], ALWAYS_KEEP, EQUAL, 5)
    assert found["input_ids"] == [2, 10, 11, 3, 0]
    assert found["labels"] == [-100, 50, 51, -100, -100]


def test_a_kept_slot_of_another_length_shows_the_mask() -> None:
    found = view_one(CodeSwitchedLabels(t=1), [[Segment(1, [Word([10, 11], 0)])]], ALWAYS_KEEP, LONGER, 5)
    assert found["input_ids"] == [2, 4, 4, 4, 3]


def test_a_word_without_translation_is_predicted_as_itself() -> None:
    found = view_one(CodeSwitchedLabels(t=1), [[Segment(1, [Word([10], -1)])]], ALWAYS_KEEP, EQUAL, 3)
    assert found["input_ids"] == [2, 10, 3]
    assert found["labels"] == [-100, 10, -100]
    assert found["cross_lingual"] == 0


def test_an_instance_in_dictionary_mode_predicts_translations_only() -> None:
    row: Row = [[Segment(1, [Word([10], -1), Word([11, 12], 0), Word([13], -1)])]]
    found = view_one(CodeSwitchedLabels(t=1, mix_unit="instance"), row, ALWAYS_MASK, EQUAL, 6)
    assert found["input_ids"] == [2, 10, 4, 4, 13, 3]
    assert found["labels"] == [-100, -100, 50, 51, -100, -100]


@pytest.mark.parametrize(
    ("stream", "segments"),
    [
        (MaskedText(), 1), (MaskedPairs(), 2), (CodeSwitchedLabels(), 1), (CodeSwitchedCopy(), 1), (AlignedPairs(), 2),
        (ContrastedPairs(), 2), (MaskedTranslations(), 2),
    ],
)  # fmt: skip
def test_no_rows_give_columns_without_rows(stream: Stream, segments: int) -> None:
    context = StreamContext(0, MaskingConfig(), VOCABULARY, as_lexicon([]), 16, global_rows=1)
    columns = no_rows(stream, context)
    full = stream_columns(stream, as_rows([[[Segment(0, [Word([9], -1)])] * segments]]), np.array([0]), context)
    assert {name: values.shape[1:] for name, values in columns.items()} == {
        name: values.shape[1:] for name, values in full.items()
    }
    assert all(len(values) == 0 and values.dtype == full[name].dtype for name, values in columns.items())
