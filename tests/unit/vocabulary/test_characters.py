"""Words of lines in scripts with and without blanks, counted by hand."""

from __future__ import annotations

import pytest

from xalign_ray.vocabulary.words import CHARACTERS_A_WORD, IDEOGRAPH, SYLLABLE, count_words, has_letter, read_characters


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("the cat -- sat, twice .", 4),
        ("l'eau, 3,5 % et 100$", 4),
        ("\u092f\u0939 \u0939\u093f\u0928\u094d\u0926\u0940 \u0939\u0948\u0964", 3),  # Hindi: vowel signs part no word
        ("\ud55c\uad6d\uc5b4 \ubb38\uc7a5", 2),  # Korean has blanks
        ("\u200b\t\u3000", 0),  # a zero width space, and blanks
        ("", 0),
        ("...", 0),
    ],
)
def test_words_between_blanks(line: str, words: int) -> None:
    assert count_words(["before", line, "after"]).tolist() == [1, words, 1]


def test_words_of_scripts_without_blanks() -> None:
    chinese = "\u6211\u559c\u6b22 Python 3\uff0c\u771f\u7684\u3002"  # 5 characters, 2 words between blanks
    thai = "\u0e09\u0e31\u0e19\u0e23\u0e31\u0e01\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22"  # 13, vowel signs included
    found = count_words([chinese, thai])
    assert found.tolist() == pytest.approx([5 / CHARACTERS_A_WORD[IDEOGRAPH] + 2, 13 / CHARACTERS_A_WORD[SYLLABLE]])


def test_units_end_where_lines_end() -> None:
    text = read_characters(["ab \u6587\u5b57c", "", "d e", "f"])
    assert text.unit_length.tolist() == [2, 1, 1, 1, 1, 1, 1]
    assert text.line_units.tolist() == [4, 0, 2, 1]
    assert text.line_length.tolist() == [5, 0, 2, 1]
    assert "".join(map(chr, text.points)) == "ab\u6587\u5b57cdef"


def test_units_with_a_letter() -> None:
    assert has_letter(read_characters(["a1 1 ... \u6587 \u0e01 $"])).tolist() == [True, False, False, True, True, False]
