"""Translations as inputs, refilled instances and the switched copy: equal to the slow streams, and worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity.slow_streams import Group, Row, Segment, Word, as_rows
from tests.parity.slow_switched import SlowSwitched
from tests.parity.stream_cases import ALWAYS_KEEP, ALWAYS_MASK, assert_equal, make_rows, make_settings, view_one
from xalign_ray.config.choices import CodeSwitchedCopy, CodeSwitchedLabels
from xalign_ray.streams.prediction import stream_columns

WHOLE_WORD = pytest.mark.parametrize("whole_word", [True, False])


@WHOLE_WORD
@pytest.mark.parametrize("unit", ["word", "instance"])
@pytest.mark.parametrize("rate", [0.15, 0.5])
def test_swapped_inputs_equal_the_slow_view(rate: float, unit: str, whole_word: bool) -> None:
    slow, context = make_settings(SlowSwitched, 17, rate, whole_word=whole_word)
    rows, positions = make_rows(120, 1), np.arange(120) * 3
    stream = CodeSwitchedLabels(t=0.6, mix_unit=unit, variant="input_swap")  # type: ignore[arg-type]
    found = stream_columns(stream, as_rows(rows), positions, context)
    options = {"t": 0.6, "instance": unit == "instance"}
    assert_equal(found, [slow.input_swapped(row, int(p), **options) for row, p in zip(rows, positions, strict=True)])
    assert found["cross_lingual"].sum() > 10
    assert found["no_room"].sum() > 10


@WHOLE_WORD
@pytest.mark.parametrize("rate", [0.15, 0.5])
def test_refilled_instances_equal_the_slow_view(rate: float, whole_word: bool) -> None:
    slow, context = make_settings(SlowSwitched, 23, rate, whole_word=whole_word)
    rows, positions = make_rows(120, 1), np.arange(120) + 99
    found = stream_columns(
        CodeSwitchedLabels(t=0.8, mix_unit="instance", refill=True), as_rows(rows), positions, context
    )
    assert_equal(found, [slow.refilled(row, int(p), t=0.8) for row, p in zip(rows, positions, strict=True)])
    without = stream_columns(CodeSwitchedLabels(t=0.8, mix_unit="instance"), as_rows(rows), positions, context)
    assert (found["labels"] >= 0).sum() > (without["labels"] >= 0).sum() + 50


@WHOLE_WORD
@pytest.mark.parametrize(("where", "segments"), [("reset", False), ("running", True)])
@pytest.mark.parametrize("rate", [0.15, 1.0])
def test_the_switched_copy_equals_the_slow_view(rate: float, where: str, segments: bool, whole_word: bool) -> None:
    slow, context = make_settings(SlowSwitched, 29, 0.3, whole_word=whole_word, max_seq_length=60)
    rows, positions = make_rows(120, 1, filled=30), np.arange(120) * 11
    stream = CodeSwitchedCopy(codeswitch_rate=rate, positions=where, segments=segments)  # type: ignore[arg-type]
    found = stream_columns(stream, as_rows(rows), positions, context)
    options = {"rate": rate, "reset": where == "reset", "segments": segments}
    assert_equal(found, [slow.switched_copy(row, int(p), **options) for row, p in zip(rows, positions, strict=True)])
    assert found["cross_lingual"].sum() > 10
    assert rate < 1 or found["no_room"].sum() > 20, "the rows are meant to be full enough that some do not fit"


# --- by hand ---------------------------------------------------------------------------------------------------------
TWO = [[Group(2, [[50, 51]])]]
THREE = [[Group(2, [[50, 51, 52]])]]


def swapped(row: Row, dictionary: list[list[Group]], t: float) -> dict:
    return view_one(CodeSwitchedLabels(t=t, variant="input_swap"), row, ALWAYS_MASK, dictionary, 6)


def test_a_swapped_input_shows_the_synonym_and_asks_for_the_word() -> None:
    found = swapped([[Segment(1, [Word([10, 11], 0)])]], TWO, t=1)
    assert found["input_ids"] == [2, 50, 51, 3, 0, 0]
    assert found["labels"] == [-100, 10, 11, -100, -100, -100]
    assert found["language_ids"] == [1, 2, 2, 1, 0, 0]
    assert (found["cross_lingual"], found["no_room"]) == (2, 0)


def test_a_synonym_of_another_length_leaves_the_word_visible() -> None:
    found = swapped([[Segment(1, [Word([10, 11], 0)])]], THREE, t=1)
    assert found["input_ids"] == [2, 10, 11, 3, 0, 0]
    assert found["labels"] == [-100, 10, 11, -100, -100, -100]
    assert found["language_ids"] == [1, 1, 1, 1, 0, 0]
    assert (found["cross_lingual"], found["no_room"]) == (0, 1)


def test_a_flagged_word_without_an_entry_stays_visible() -> None:
    found = swapped([[Segment(1, [Word([10], -1)])]], TWO, t=1)
    assert found["input_ids"] == [2, 10, 3, 0, 0, 0]
    assert found["labels"] == [-100, 10, -100, -100, -100, -100]
    assert (found["cross_lingual"], found["no_room"]) == (0, 0)


def test_a_word_that_is_not_flagged_is_masked_as_any() -> None:
    found = swapped([[Segment(1, [Word([10, 11], 0), Word([12], -1)])]], TWO, t=0)
    assert found["input_ids"] == [2, 4, 4, 4, 3, 0]
    assert found["labels"] == [-100, 10, 11, 12, -100, -100]


def test_an_instance_of_translations_is_refilled_with_its_other_words() -> None:
    row: Row = [[Segment(1, [Word([10], -1), Word([11, 12], 0), Word([13], -1)])]]
    found = view_one(CodeSwitchedLabels(t=1, mix_unit="instance", refill=True), row, ALWAYS_MASK, TWO, 6)
    assert found["input_ids"] == [2, 4, 4, 4, 4, 3]
    assert found["labels"] == [-100, 10, 50, 51, 13, -100]
    assert found["language_ids"] == [1, 1, 2, 2, 1, 1]
    assert found["cross_lingual"] == 2


GLOSS: Row = [[Segment(1, [Word([10], -1), Word([11, 12], 0)])]]


def test_a_gloss_by_hand() -> None:
    found = view_one(CodeSwitchedCopy(codeswitch_rate=1), GLOSS, ALWAYS_KEEP, THREE, 11)
    assert found["input_ids"] == [2, 10, 11, 12, 3, 10, 50, 51, 52, 3, 0]
    assert found["labels"] == [-100, 10, 11, 12, -100, 10, 50, 51, 52, -100, -100]
    assert found["position_ids"] == [0, 1, 2, 3, 4, 1, 2, 3, 4, 5, 0]
    assert found["language_ids"] == [1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 0]
    assert found["example_ids"] == [1] * 10 + [0]
    assert found["segment_ids"] == [0] * 11
    assert (found["cross_lingual"], found["no_room"]) == (3, 0)


def test_a_copy_without_room_to_grow_is_plain() -> None:
    found = view_one(CodeSwitchedCopy(codeswitch_rate=1), GLOSS, ALWAYS_MASK, THREE, 9)
    assert found["input_ids"] == [2, 4, 4, 4, 3, 4, 4, 4, 3]
    assert found["labels"] == [-100, 10, 11, 12, -100, 10, 11, 12, -100]
    assert found["language_ids"] == [1] * 9
    assert (found["cross_lingual"], found["no_room"]) == (0, 1)


def test_a_copy_that_replaces_nothing_is_the_text_twice() -> None:
    found = view_one(
        CodeSwitchedCopy(codeswitch_rate=0, positions="running", segments=True), GLOSS, ALWAYS_KEEP, TWO, 9
    )
    assert found["input_ids"] == [2, 10, 11, 12, 3, 10, 11, 12, 3]
    assert found["position_ids"] == list(range(9))
    assert found["segment_ids"] == [0] * 5 + [1] * 4
    assert found["cross_lingual"] == 0


def test_a_row_packed_too_full_for_its_copy_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="more than half"):
        view_one(CodeSwitchedCopy(), GLOSS, ALWAYS_MASK, TWO, 8)
