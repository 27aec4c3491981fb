"""Rules for the quality of documents, each on documents whose measures were counted by hand."""

from __future__ import annotations

import pytest

from xalign_ray.clean.filters import low_quality
from xalign_ray.config.sources import QualityConfig
from xalign_ray.sources.records import Document

GOOD = ("The cat sat on the mat.", "It saw a dog, and ran away from it.")  # 6 and 9 words
CHINESE = ("\u6211\u559c\u6b22\u6c49\u8bed\u3002" * 6,)  # 30 characters, so 17.6 words, and 6 full stops


def judge(paragraphs: tuple[str, ...], language: str = "en", **rules) -> list[str]:
    """The reasons against a document, which stands between others that no rule minds."""
    documents = [Document(language, some, "here", 1) for some in (GOOD, paragraphs, GOOD)]
    found = low_quality(QualityConfig(**rules), language, documents)
    assert not any(mask[[0, 2]].any() for mask in found.values())
    return [reason for reason, mask in found.items() if mask[1]]


def test_words_of_a_document() -> None:
    reason = "document has too few words"
    assert judge(GOOD, min_doc_words=15) == []
    assert judge(GOOD[1:], min_doc_words=10) == [reason]
    assert judge(("one -- two . !",), min_doc_words=2) == []
    assert judge(("one -- two . !",), min_doc_words=3) == [reason]
    assert judge((*GOOD, "one"), max_doc_words=15) == ["document has too many words"]


def test_words_of_a_language_without_blanks() -> None:
    assert judge(CHINESE, "zh", min_doc_words=15) == []
    assert judge((CHINESE[0][:24],), "zh", min_doc_words=12) == ["document has too few words"]


@pytest.mark.parametrize(
    ("rule", "reason", "at", "over", "under"),
    [
        # "The cat sat on the mat": 17 characters, 6 words
        ("min_avg_word_length", "words are too short on average", GOOD[:1], 2.84, 2.83),
        ("max_avg_word_length", "words are too long on average", GOOD[:1], 2.83, 2.84),
        ("min_alpha_words_ratio", "too few words with a letter", ("a 1 2 b3 ...",), 0.51, 0.5),
        ("max_symbol_word_ratio", "too many hash signs or ellipses", ("a #b c d",), 0.24, 0.25),
        ("max_symbol_word_ratio", "too many hash signs or ellipses", ("a... b\u2026 c d",), 0.49, 0.5),
        ("max_digit_fraction", "too many digits", ("a 12 b 3 cd 56",), 0.55, 0.56),  # 5 of 9
        ("max_punctuation_fraction", "too much punctuation", ("ab, + cd.",), 0.42, 0.43),  # 3 of 7
        ("max_bullet_lines_ratio", "too many lines begin with a bullet", ("- a", "* b", "\u2022 c", "d -"), 0.74, 0.75),
        ("max_ellipsis_lines_ratio", "too many lines end in an ellipsis", ("a...", "b\u2026 ", "c... d"), 0.66, 0.67),
        ("dup_line_frac", "too many duplicate lines", ("ab", "cd", "ab", "ab", "AB"), 0.39, 0.4),
        # 2 of 8
        ("dup_line_char_frac", "too many characters in duplicate lines", ("a b", "cde", "a b", "f"), 0.24, 0.25),
    ],
)  # fmt: skip
def test_a_rule_at_its_bound(rule: str, reason: str, at: tuple[str, ...], over: float, under: float) -> None:
    words = [Document("en", at, "here", 1)]
    assert {name: mask.tolist() for name, mask in low_quality(QualityConfig(**{rule: over}), "en", words).items()} == {
        reason: [True]
    }
    assert not low_quality(QualityConfig(**{rule: under}), "en", words)[reason].any()


def test_the_length_of_words_is_not_asked_where_there_are_no_blanks() -> None:
    assert judge(CHINESE, "zh", min_avg_word_length=2, max_avg_word_length=4) == []
    mixed = ("\u6211\u7528 Donaudampfschifffahrtsgesellschaft",)
    assert judge(mixed, "zh", max_avg_word_length=10) == [], "1.2 words without blanks, 1 with"
    assert judge((f"{mixed[0]} Rindfleischetikettierung",), "zh", max_avg_word_length=10) == [
        "words are too long on average"
    ]


def test_punctuation_of_chinese_is_no_word_without_a_letter() -> None:
    assert judge(CHINESE, "zh", min_alpha_words_ratio=0.99) == []


def test_repeated_words() -> None:
    text = ("the cat sat", "the cat ran", "the dog")  # twice "the cat": 12 of 24 characters
    assert judge(text, top_n_grams=((2, 0.49),)) == ["one n-gram of words is too frequent"]
    assert judge(text, top_n_grams=((2, 0.5),)) == []
    assert judge(text, dup_n_grams=((2, 0.24),)) == ["too many duplicate n-grams of words"]
    assert judge(text, dup_n_grams=((2, 0.25), (3, 0))) == []


def test_repeated_words_of_a_language_without_blanks_are_repeated_letters() -> None:
    twice = ("\u6211\u559c\u6b22\u6c49\u8bed\u5417\u6211\u559c\u6b22\u6c49\u3002",)  # 4 of 10 letters stood before
    assert judge(twice, "zh", dup_n_grams=((2, 0.39),)) == ["too many duplicate n-grams of words"], "2 words: 4 letters"
    assert judge(twice, "zh", dup_n_grams=((2, 0.4),)) == []
    assert judge(twice, "zh", dup_n_grams=((3, 0.01),)) == [], "no 6 letters twice"


def test_a_document_without_a_word() -> None:
    rules = {"min_avg_word_length": 1, "max_symbol_word_ratio": 0.1, "top_n_grams": ((2, 0.4),), "min_doc_words": 1}
    assert judge(("...", "!"), **rules)[0] == "document has too few words"
