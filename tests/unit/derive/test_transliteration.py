"""The other script: one-to-one and unlike English; and the vocabulary that holds each piece twice, id and id + V."""

from __future__ import annotations

import random
import string
import unicodedata

import pytest
from tokenizers import Tokenizer

from xalign_ray.config.sources import BpeTokenizer
from xalign_ray.derive.changes import (
    SPACE_MARK,
    TYPOGRAPHIC,
    Transliterator,
    double_vocabulary,
    draw_kept,
    is_copied,
    transliterate,
    without_other_script,
    word_types,
)
from xalign_ray.vocabulary.tokenizer import SPECIALS, tokenize_words, train_bpe

WRITABLE = string.ascii_letters + string.digits + string.punctuation + TYPOGRAPHIC
STRANGE = "\u00e9\u0416\u4e2d\u3400\u0928\U0001f600\u2603\u2032\u10d0\uac00"
SYLLABLES = [a + b for a in "bdfgklmnprst" for b in "aeiou"]


def words(seed: int, count: int) -> list[str]:
    source = random.Random(seed)
    return ["".join(source.choices(SYLLABLES, k=source.randint(1, 4))) for _ in range(count)]


@pytest.fixture(scope="module")
def english() -> Tokenizer:
    lines = [" ".join(words(seed, 12)) + ", caf\u00e9 1990 \u4e2d\u6587 na\u00efve ." for seed in range(300)]
    return train_bpe(BpeTokenizer(vocab_size=400), lambda: map(without_other_script, lines))


def pieces(tokenizer: Tokenizer, word: str) -> list[int]:
    return tokenizer.encode(word, add_special_tokens=False).ids


def test_letters_are_lower_cased_and_mapped_one_to_one() -> None:
    lower = WRITABLE[26:].replace(string.ascii_uppercase, "")
    written = [transliterate(character) for character in lower]
    assert all(len(character) == 1 for character in written)
    assert len(set(written)) == len(lower)
    assert transliterate("ABC") == transliterate("abc") == "".join(transliterate(letter) for letter in "abc")


def test_nothing_that_text_holds_is_shared_with_the_other_script() -> None:
    written = set("".join(transliterate(character) for character in WRITABLE + STRANGE))
    assert not written & set(WRITABLE)
    for character in (*WRITABLE, *STRANGE):
        assert transliterate(character) != character


def test_marks_stay_marks_and_letters_letters_so_that_words_are_cut_as_before() -> None:
    for character in string.punctuation + TYPOGRAPHIC:
        assert unicodedata.category(transliterate(character)).startswith("P")
    assert {unicodedata.category(transliterate(letter)) for letter in string.ascii_lowercase} == {"Ll"}
    assert {unicodedata.category(transliterate(digit)) for digit in string.digits} == {"Nd"}
    assert transliterate("\u4e2d") == "\U0002002d"


def test_the_other_script_survives_the_tokenizer_s_normalizer(english: Tokenizer) -> None:
    text = " ".join(transliterate(word) for word in ["abc", "019", *string.punctuation, "caf\u00e9", "\u00e7\u0416"])
    assert english.normalizer.normalize_str(text) == text


def test_no_two_characters_below_u_3000_are_written_the_same() -> None:
    forms = {chr(code) for code in range(0x21, 0x3000) if not chr(code).isspace()}
    forms = {form for form in forms if form == unicodedata.normalize("NFC", form).lower()}
    assert len({transliterate(form) for form in forms}) == len(forms)


def test_characters_outside_the_table_are_spelled_so_that_two_words_never_become_one() -> None:
    listed = ["caf\u00e9", "cafe", "caf\u00e8", "\u4e2d\u6587", "\u6587\u4e2d", "\U0001f600", "e9", "\u00e99", "\u2032"]
    assert len({transliterate(word) for word in listed}) == len(listed)
    assert is_copied("caf\u00e9")
    assert not is_copied("\U0001f600")


def test_each_ordinary_piece_has_its_copy_v_further_on(english: Tokenizer) -> None:
    size = english.get_vocab_size()
    both = double_vocabulary(english)
    assert both.get_vocab_size() == 2 * size
    for piece, number in english.get_vocab().items():
        assert both.token_to_id(piece) == number
        shared = piece in SPECIALS or piece == SPACE_MARK
        copy = f"[unused{number}]" if shared else "".join(map(transliterate, piece))
        assert both.token_to_id(copy) == number + size


@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.5])
def test_a_derived_word_has_the_pieces_of_the_english_one_moved_by_v_but_for_those_kept(
    overlap: float, english: Tokenizer
) -> None:
    size, both, kept = english.get_vocab_size(), double_vocabulary(english), draw_kept(english, overlap, seed=3)
    write = Transliterator(english, kept).write
    stay = kept | {english.token_to_id(name) for name in (*SPECIALS, SPACE_MARK)}
    moved = unmoved = 0
    for word in [*words(999, 500), "caf\u00e9", "1990", "\u4e2d\u6587", "na\u00efve", ",", "Bat", "qxz"]:
        found = pieces(english, word)
        assert pieces(both, word) == found
        assert pieces(both, write(word)) == [number if number in stay else number + size for number in found]
        moved += sum(number not in stay for number in found)
        unmoved += sum(number in kept for number in found)
    assert (unmoved > 0) == (overlap > 0)
    assert moved > 100


def test_a_share_of_the_ordinary_pieces_is_kept(english: Tokenizer) -> None:
    ordinary = english.get_vocab_size() - len(SPECIALS) - 1
    assert draw_kept(english, 0.0, 0) == frozenset()
    kept = draw_kept(english, 0.25, 0)
    assert len(kept) == round(0.25 * ordinary)
    assert kept == draw_kept(english, 0.25, 0) != draw_kept(english, 0.25, 1)
    assert kept < draw_kept(english, 0.5, 0)
    assert not kept & {english.token_to_id(name) for name in (*SPECIALS, SPACE_MARK)}


def test_the_types_are_the_words_of_one_piece_and_each_has_another_copy(english: Tokenizer) -> None:
    both, kept = double_vocabulary(english), draw_kept(english, 0.25, 0)
    types = word_types(english, kept, both)
    expected = set()
    for piece, number in english.get_vocab().items():
        if piece.startswith(SPACE_MARK) and piece != SPACE_MARK and number not in kept:
            expected.add(piece[1:])
    assert {word for word, _ in types} == expected
    assert len({copy for _, copy in types}) == len(types) > 20
    found = tokenize_words(both, [word for pair in types for word in pair])
    assert all(len(ids) == 1 for ids in found)
    ids = [number for (number,) in found[::2]]
    assert ids == sorted(ids)


def test_what_is_written_in_the_other_script_is_no_part_of_an_english_vocabulary() -> None:
    assert without_other_script("a\u10d0b \uac00\U00020000 \u2e00.") == "a b     ."
    assert without_other_script("a\u2581\u2581b") == "a  b"  # a piece of two blank marks would be its own copy
