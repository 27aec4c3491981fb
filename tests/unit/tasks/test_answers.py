"""Comparison of answers by hand: MLQA's official script with its quirks in every language, and SQuAD's."""

from __future__ import annotations

import pytest

from xalign_ray.tasks.question_answering import (
    best_match,
    exact_match,
    mlqa_tokens,
    random_answer,
    squad_tokens,
    token_f1,
)

CASES = {
    # language: text, tokens
    "en": ("The  cat, a DOG's \u201cAn\u201d end\u2014theory!", ["cat", "dogs", "endtheory"]),
    "de": ("Der Hund des einen, Eine Ende, dessen \u201eTag\u201c", ["hund", "ende", "dessen", "tag"]),
    "es": ("\u00bfLos gatos y las unas? Unidos, El la", ["gatos", "y", "unidos"]),
    "vi": ("C\u1ee7a nh\u1eefng chi\u1ebfc xe l\u00e0 c\u00e1i g\u00ec?", ["xe", "g\u00ec"]),
    "ar": (
        "\u0627\u0644\u0637\u0631\u0642 \u0628\u0627\u0644\u0641\u0639\u0644\u060c 6",  # the article inside a word, too
        ["\u0637\u0631\u0642", "\u0628", "\u0641\u0639\u0644", "6"],
    ),
    "hi": (
        "\u0926 \u0939\u093f\u0928\u094d\u0926\u0940\u0964 \u0915\u093e",
        ["\u0926", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0915\u093e"],
    ),
    "zh": (
        "\u7b2c3\u5c4a\uff0cThe NBA\u8d5b \u4e00 2,000",  # ideographs one by one; no articles, not even English ones
        ["\u7b2c", "3", "\u5c4a", "the", "nba", "\u8d5b", "\u4e00", "2000"],
    ),
    "ru": ("\u0410 the \u00abdom\u00bb", ["\u0430", "the", "dom"]),
    "zh-Hant": ("\u4e00\u4e8c", ["\u4e00", "\u4e8c"]),
}  # fmt: skip


@pytest.mark.parametrize("language", CASES)
def test_the_tokens_of_an_answer(language: str):
    text, tokens = CASES[language]
    assert mlqa_tokens(text, language) == tokens


def test_tokens_of_squad_know_ascii_punctuation_and_english_articles_in_every_language():
    for language in ("en", "de", "zh"):
        said = "Der \u201eHund\u201c, THE \u4e00\u4e8c a-b $4"
        assert squad_tokens(said, language) == ["der", "\u201ehund\u201c", "\u4e00\u4e8c", "ab", "4"]


def test_what_is_no_punctuation_stays_even_if_it_is_a_symbol_of_unicode():
    assert mlqa_tokens("5\u20ac + 3\u00b0 $4 ~x_y", "en") == ["5\u20ac", "3\u00b0", "4", "xy"]


def test_articles_go_after_punctuation_and_only_as_whole_words():
    assert mlqa_tokens("the-an other", "en") == ["thean", "other"]
    assert mlqa_tokens("Theo atheist an\u00e4", "en") == ["theo", "atheist", "an\u00e4"]


def test_f1_counts_each_token_as_often_as_both_have_it():
    assert token_f1(["a", "a", "b"], ["a", "b", "b", "c"]) == pytest.approx(2 * (2 / 3) * (2 / 4) / (2 / 3 + 2 / 4))
    assert token_f1(["x"], ["y"]) == 0.0


def test_nothing_said_to_an_answer_of_articles_is_exact_and_has_no_f1():
    assert best_match("", ["The"], "en", exact_match, mlqa_tokens) == 1.0
    assert best_match("", ["The"], "en", token_f1, mlqa_tokens) == 0.0


def test_the_best_of_several_right_answers_counts():
    right = ["In 1999", "1999", "the year"]
    assert best_match("1999!", right, "en", exact_match, mlqa_tokens) == 1.0
    assert best_match("year 1999", right, "en", token_f1, mlqa_tokens) == pytest.approx(2 / 3)


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
