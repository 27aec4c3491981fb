"""The rule of words, against a plain reference for every character, and how pieces are given to words."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from tests.parity.slow_words import split_slowly
from xalign_ray.vocabulary.tokenizer import tokenize_lines
from xalign_ray.vocabulary.words import find_line_words

LINES = {
    "Don't go!": "Don|'|t|go|!",
    "l\u2019eau (c'est) 3.14 x_y e-mail 10% 5\u20ac m\xb2 \xa9": (
        "l|\u2019|eau|(|c|'|est|)|3|.|14|x|_|y|e|-|mail|10|%|5|\u20ac|m|\xb2|\xa9"
    ),
    "abc123 \u0661\u0662": "abc123|\u0661\u0662",
    # Devanagari: vowel signs and virama stay with their letter, ZWJ between marks too; the danda stands apart.
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0915\u094d\u200d\u0937\u0964": (
        "\u0939\u093f\u0928\u094d\u0926\u0940|\u0915\u094d\u200d\u0937|\u0964"
    ),
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645\u060c": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645|\u060c",
    "\u6211\u4eec\u3002\u65e5\u672cab": "\u6211|\u4eec|\u3002|\u65e5|\u672c|ab",
    "\u8449\U000e0100\u6587\ufe00": "\u8449\U000e0100|\u6587\ufe00",
    "\u3053\u3093\u30b3\u30fc": "\u3053|\u3093|\u30b3|\u30fc",
    "\ud55c\uad6d\uc5b4\ub97c": "\ud55c\uad6d\uc5b4\ub97c",
    "\u0e44\u0e17\u0e22\u0e27\u0e31\u0e19": "\u0e44|\u0e17|\u0e22|\u0e27\u0e31|\u0e19",
    "\u1780\u17d2\u1793\u200b\u178f": "\u1780\u17d2|\u1793|\u178f",
    "\u0f56\u0f7c\u0f51\u0f0b\u0f61": "\u0f56\u0f7c\u0f51|\u0f0b|\u0f61",
    "a\xa0b\u3000c\td\u2028e": "a|b|c|d|e",
    "co\xadop \u202eabc\u202c": "co\xadop|\u202e|abc\u202c",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f600 \U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7 \u2764\ufe0f": (
        "\U0001f468\u200d\U0001f469\u200d\U0001f467|\U0001f600|\U0001f1e9\U0001f1ea|\U0001f1eb\U0001f1f7|\u2764\ufe0f"
    ),
    "...": ".|.|.",
    " \u0301a": "\u0301|a",
    "": "",
    "  ": "",
}
# Where the standard takes a sign for a letter, or a mark for one: no text depends on these.
ODD = {0x70F, 0x19DA, 0xFF9E, 0xFF9F, 0x16FE4, *range(0x1F14A, 0x1F150), *range(0x1F16A, 0x1F170)}


def split(lines: list[str]) -> list[list[str]]:
    words = find_line_words(lines)
    line_of = np.searchsorted(words.line_begin, words.begin, "right") - 1
    begin, end = words.begin - words.line_begin[line_of], words.end - words.line_begin[line_of]
    found: list[list[str]] = [[] for _ in lines]
    for line, first, last in zip(line_of.tolist(), begin.tolist(), end.tolist(), strict=True):
        if first < len(lines[line]):  # else the end of the line
            found[line].append(lines[line][first:last])
    return found


@pytest.mark.parametrize("line", LINES)
def test_words_of_a_line(line: str) -> None:
    assert split([line]) == [[word for word in LINES[line].split("|") if word]]


@pytest.mark.parametrize("form", ["a{}b", " {}", "\u6587{}\u6587"])
def test_every_character_is_split_as_the_reference_splits_it(form: str) -> None:
    characters = (chr(point) for point in range(0x110000) if point not in ODD)
    lines = [form.format(one) for one in characters if unicodedata.category(one) not in ("Cn", "Cs", "Sk")]
    wanted = ([line[begin:end] for begin, end, _ in split_slowly(line)] for line in lines)
    different = {line: words for line, *words in zip(lines, split(lines), wanted, strict=True) if words[0] != words[1]}
    assert different == {}


def test_punctuation_is_no_word_of_letters() -> None:
    words = find_line_words(["a, \u6587 3 \u2603 \xb2", ""])
    assert words.lettered.tolist() == [True, False, True, True, False, False, False, False]


def pieces_of(vocabulary: str, line: str) -> list[tuple[str, str]]:
    """Words as (pieces, form) of a tokenizer that takes the longest piece, blanks written as U+2581."""
    names = ["[UNK]", *vocabulary.split()]
    vocab = {name: number for number, name in enumerate(names)}
    made = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", continuing_subword_prefix=""))
    made.normalizer = normalizers.Replace(" ", "\u2581")
    found = tokenize_lines(made, [line])
    pieces = iter(found.pieces.tolist())
    words = [" ".join(names[next(pieces)] for _ in range(length)) for length in found.word_length.tolist()]
    return list(zip(words, found.forms, strict=True))


PIECES = {
    "a blank leads the word behind it": ("a \u2581 b", "a b", [("a", "a"), ("\u2581 b", "b")]),
    "a run of blanks too": ("a \u2581 \u2581\u2581 b", "a   b", [("a", "a"), ("\u2581\u2581 \u2581 b", "b")]),
    "blanks at the end are a word without a form": ("a \u2581", "a ", [("a", "a"), ("\u2581", "")]),
    "punctuation and letters in one piece": ("(the mat )", "(themat)", [("(the mat", "themat"), (")", ")")]),
    "a word and the point behind it": ("\u2581 ma t. \u2581so", "mat. so", [("ma t.", "mat"), ("\u2581so", "so")]),
    "two words in one piece": ("new\u2581york s", "new yorks", [("new\u2581york s", "new yorks")]),
    "two characters in one piece": ("\u6211\u4eec \u5b66", "\u6211\u4eec\u5b66",
                                    [("\u6211\u4eec", "\u6211\u4eec"), ("\u5b66", "\u5b66")]),
    "a chain of shared words": ("a( )b c", "a()bc", [("a(", "a"), (")b c", "bc")]),
    "punctuation alone": ("). a", ").a", [(").", ")."), ("a", "a")]),
}  # fmt: skip


@pytest.mark.parametrize("case", PIECES)
def test_pieces_of_words(case: str) -> None:
    vocabulary, line, wanted = PIECES[case]
    assert pieces_of(vocabulary, line) == wanted


def test_what_counts_as_a_word() -> None:
    names = ["[UNK]", "(", "a", "b", "\u2581", "."]
    made = Tokenizer(models.WordPiece({name: n for n, name in enumerate(names)}, unk_token="[UNK]",
                                      continuing_subword_prefix=""))  # fmt: skip
    made.normalizer = normalizers.Replace(" ", "\u2581")
    found = tokenize_lines(made, ["(a aab.", "."], 3)
    assert found.word_length.tolist() == [1] * 8
    assert found.lettered.tolist() == [False, True, True, False, False, False, False, False]


def test_an_added_token_behind_a_chinese_character_is_a_word_of_its_own() -> None:
    made = Tokenizer(models.WordPiece({"[UNK]": 0, "\u6587": 1}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_tokens([AddedToken("hund", single_word=True, lstrip=True, normalized=True)])
    assert tokenize_lines(made, ["\u6587hund \u6587 hund"]).forms == ["\u6587", "hund", "\u6587", "hund"]
