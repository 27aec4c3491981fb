"""Comparison of answers by hand: MLQA's official script with its quirks in every language, and SQuAD's."""

from __future__ import annotations

import pytest

from xalign_ray.tasks.question_answering import (
    mlqa_tokens,
    random_answer,
)

CASES = {  # languages that MLQA has not; tests/parity/test_scores.py has its own against a slow reference
    "ru": ("\u0410 the \u00abdom\u00bb", ["\u0430", "the", "dom"]),
    "zh-Hant": ("\u4e00\u4e8c", ["\u4e00", "\u4e8c"]),
}


@pytest.mark.parametrize("language", CASES)
def test_the_tokens_of_an_answer(language: str):
    text, tokens = CASES[language]
    assert mlqa_tokens(text, language) == tokens


def test_what_is_no_punctuation_stays_even_if_it_is_a_symbol_of_unicode():
    assert mlqa_tokens("5\u20ac + 3\u00b0 $4 ~x_y", "en") == ["5\u20ac", "3\u00b0", "4", "xy"]


def test_a_random_answer_is_as_long_as_the_right_one_and_always_the_same():
    context = "one two  three four five six seven eight nine ten"
    said = {random_answer(str(key), context, "two  three", "en") for key in range(40)}
    assert len(said) > 5
    assert all(text in context and len(text.split()) == 2 for text in said)
    assert random_answer("7", context, "x y", "en") == random_answer("7", context, "p q", "en")
    assert random_answer("7", context, context, "en") == context


def test_a_random_answer_in_chinese_is_counted_in_ideographs():
    context = "\u4e00\u4e8c\u4e09 NBA \u56db"
    assert random_answer("7", context, "\u4e00NBA\u4e8c\u4e09\u56db", "zh") == context
    said = {random_answer(str(key), context, "\u4e8c", "zh") for key in range(40)}
    assert said == {"\u4e00", "\u4e8c", "\u4e09", "NBA", "\u56db"}
