"""The usual script of a language, known or not, and how many letters make a word in it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from xalign_ray.vocabulary.words import in_other_script, letters_a_word, script_of, usual_script


@pytest.mark.parametrize(
    ("language", "letter"),
    [
        ("en", "a"), ("zh", "\u6587"), ("ja", "\u3042"), ("ko", "\ud55c"), ("ar", "\u0639"), ("sr", "\u0430"),
        ("azb", "\u0639"), ("pnb", "\u0639"), ("sh", "a"), ("sr-Latn", "a"),
    ],
)  # fmt: skip
def test_the_usual_script_of_a_language(language: str, letter: str) -> None:
    pattern = usual_script(language)
    assert pattern is not None
    found = pc.count_substring_regex(pa.array([letter, "\u0531"]), pattern).to_pylist()
    assert found == [1, 0], "an Armenian letter is in none of them"


def test_a_language_whose_script_nobody_knows_is_not_checked() -> None:
    assert script_of("qaa") == ""
    assert usual_script("qaa") is None
    assert in_other_script(["\u0430", "a"], "qaa", 1).tolist() == [False, False]


def test_a_share_of_letters() -> None:
    lines = ["ab\u0430", "a\u0430\u0430", "12", ""]
    assert in_other_script(lines, "en", 0.5).tolist() == [False, True, False, False]
    long_vowels = ["\u30b9\u30fc\u30d1\u30fc\u30fc\u30fc", "\u30fc", "\u30fca"]  # the mark is a letter of no one script
    assert in_other_script(long_vowels, "ja", 0.9).tolist() == [False, False, True]
    assert in_other_script(["\u0643\u0640\u0640\u0640\u062a"], "ar", 0.9).tolist() == [False]


def test_letters_of_a_word() -> None:
    assert [letters_a_word(language) for language in ("en", "ko", "zh-Hant", "ja", "th")] == [1, 1, 1.7, 1.7, 4.5]
