"""The derived language: words, sentences, inversion, and a writing that is one-to-one and shares nothing."""

from __future__ import annotations

import string
import unicodedata

import pytest

from xalign_ray.config.tokenizers import BpeTokenizer
from xalign_ray.text.derived import (
    DERIVED_LANGUAGE,
    derive,
    inverted_order,
    split_sentences,
    split_words,
    transliterate,
)
from xalign_ray.text.language_codes import check_language
from xalign_ray.text.tokenizer import train_bpe

TYPOGRAPHIC = "\u201c\u201d\u2018\u2019\u201a\u201e\u2013\u2014\u2026\u2022\u00b7\u00ab\u00bb\u00a7"
WRITABLE = string.ascii_letters + string.digits + string.punctuation + TYPOGRAPHIC


def test_the_code_of_the_language_is_a_valid_one() -> None:
    assert check_language(DERIVED_LANGUAGE) == DERIVED_LANGUAGE


def test_letters_are_lower_cased_and_mapped_one_to_one() -> None:
    lower = WRITABLE[26:].replace(string.ascii_uppercase, "")
    written = [transliterate(character) for character in lower]
    assert all(len(character) == 1 for character in written)
    assert len(set(written)) == len(lower)
    assert transliterate("ABC") == transliterate("abc") == "".join(transliterate(letter) for letter in "abc")


def test_nothing_that_text_holds_is_shared_with_the_derived_script() -> None:
    strange = "\u00e9\u0416\u4e2d\u0928\U0001f600\u2603"
    written = set("".join(transliterate(character) for character in WRITABLE + strange))
    assert not written & set(WRITABLE + strange)


def test_marks_stay_marks_and_letters_letters_so_that_words_are_cut_as_before() -> None:
    for character in string.punctuation + TYPOGRAPHIC:
        assert unicodedata.category(transliterate(character)).startswith("P")
    assert {unicodedata.category(transliterate(letter)) for letter in string.ascii_lowercase} == {"Ll"}
    assert {unicodedata.category(transliterate(digit)) for digit in string.digits} == {"Nd"}


def test_the_derived_script_survives_the_tokenizer_s_normalizer() -> None:
    text = " ".join(transliterate(word) for word in ["abc", "xyz", "019", *string.punctuation, "caf\u00e9"])
    tokenizer = train_bpe(BpeTokenizer(vocab_size=200), lambda: [text])
    assert tokenizer.normalizer.normalize_str(text) == text


def test_characters_outside_the_table_are_spelled_so_that_two_words_never_become_one() -> None:
    words = [
        "caf\u00e9",
        "cafe",
        "caf\u00e8",
        "caf\u0416",
        "\u4e2d\u6587",
        "\u6587\u4e2d",
        "\U0001f600",
        "e9",
        "\u00e99",
    ]
    assert len({transliterate(word) for word in words}) == len(words)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("The cat sat.", ["The", "cat", "sat", "."]),
        ('He said, "Go!"', ["He", "said", ",", '"', "Go", "!", '"']),
        ("I don't know the dog's name", ["I", "do", "n't", "know", "the", "dog", "'s", "name"]),
        ("she 's here", ["she", "'s", "here"]),
        ("U.S. law of Mr. J. Smith.", ["U.S.", "law", "of", "Mr.", "J.", "Smith", "."]),
        ("well-known (1990) $5.50", ["well-known", "(", "1990", ")", "$", "5.50"]),
        ("wait ...", ["wait", ".", ".", "."]),
        ("\u201cyes\u201d\u2014", ["\u201c", "yes", "\u201d", "\u2014"]),
        ("  ", []),
    ],
)
def test_a_line_is_cut_into_words(line: str, words: list[str]) -> None:
    assert split_words(line) == words


def test_words_are_reversed_and_the_final_mark_stays_last() -> None:
    assert inverted_order(["the", "cat", "sat", "."]) == [2, 1, 0, 3]
    assert inverted_order(["the", "cat", "sat"]) == [2, 1, 0]
    assert inverted_order(["go", "!"]) == [0, 1]
    assert inverted_order([]) == []


def test_each_sentence_of_a_text_is_reversed_on_its_own() -> None:
    words = ["a", "b", ".", "c", "d", "?", "!", "e", "f"]
    assert [words[place] for place in inverted_order(words)] == ["b", "a", ".", "d", "c", "?", "!", "f", "e"]
    assert split_sentences(words) == [["a", "b", "."], ["c", "d", "?"], ["!"], ["e", "f"]]


def test_inverting_the_sentences_one_by_one_is_inverting_the_text() -> None:
    words = split_words("One two three. Four five! Six")
    assert [word for sentence in split_sentences(words) for word in derive(sentence)] == derive(words)


def test_deriving_is_inversion_then_transliteration() -> None:
    assert derive(["The", "cat", "."]) == [transliterate("cat"), transliterate("the"), transliterate(".")]
