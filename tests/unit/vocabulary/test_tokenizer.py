"""The trained tokenizer: the same bytes each time, whole words, and no special ids out of text."""

from __future__ import annotations

import random
import weakref

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from tests.parity.slow_words import Word
from xalign_ray.config.sources import BpeTokenizer
from xalign_ray.vocabulary.dictionary import look_up_form
from xalign_ray.vocabulary.tokenizer import (
    ALPHABET_SHARE,
    LONGEST_WORD,
    SPECIALS,
    tokenize_behind,
    tokenize_lines,
    tokenize_words,
    train_bpe,
)

LINES = [
    "The cat sat on the mat, it's 3 o'clock.",
    "Der Hund l\u00e4uft \u00fcber die Stra\u00dfe",
    "\u6211\u4eec\u4eca\u5929\u53bb\u5b66\u6821 \u4e86",
    "cafe\u0301 na\u00efve Caf\u00e9",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u092e\u0947\u0902",
] * 20


def tokenize(backend: Tokenizer, lines: list[str], longest: int = LONGEST_WORD) -> list[list[Word]]:
    """What tokenize_lines finds, word by word."""
    cut = tokenize_lines(backend, lines, longest, place=True)
    pieces = iter(cut.pieces.tolist())
    words = iter(
        [
            Word(tuple(next(pieces) for _ in range(length)), form, blank)
            for length, form, blank in zip(cut.word_length.tolist(), cut.forms, cut.blank_word.tolist(), strict=True)
        ]
    )
    return [[next(words) for _ in range(count)] for count in cut.line_words.tolist()]


def chinese(lines: int) -> list[str]:
    """More characters than a vocabulary holds, most of them equally rare: where a trainer's ties would show."""
    source = random.Random(0)
    return ["".join(chr(0x4E00 + source.randrange(5000)) for _ in range(20)) + " abc" for _ in range(lines)]


@pytest.mark.parametrize("lines", [LINES, chinese(400)], ids=["words", "a large alphabet"])
def test_training_twice_gives_the_same_bytes(lines: list[str]) -> None:
    settings = BpeTokenizer(vocab_size=600)
    first, second = (train_bpe(settings, lambda: lines) for _ in range(2))
    assert first.to_str() == second.to_str()
    assert first.get_vocab_size() <= 600


def test_a_large_alphabet_leaves_room_for_pieces() -> None:
    lines = chinese(400) + ["watermelon"] * 50
    vocabulary = train_bpe(BpeTokenizer(vocab_size=600), lambda: lines).get_vocab()
    assert sum(len(piece) == 1 for piece in vocabulary) <= 600 * ALPHABET_SHARE + 1  # and the mark of a word
    assert "\u2581watermelon" in vocabulary


def test_special_tokens_come_first_and_blanks_are_no_pieces() -> None:
    vocabulary = train_bpe(BpeTokenizer(vocab_size=300), lambda: LINES).get_vocab()
    assert [vocabulary[name] for name in SPECIALS] == [0, 1, 2, 3, 4]
    assert not [piece for piece in vocabulary if piece.isspace()]


@pytest.fixture(scope="module")
def backend():
    return train_bpe(BpeTokenizer(vocab_size=300), lambda: LINES)


def test_words_know_the_word_by_white_space_that_they_begin_in(backend) -> None:
    (words,) = tokenize(backend, [" It's\u00a0 the   cat, the-cat."])
    assert [word.blank_word for word in words] == [0, 0, 0, 1, 2, 2, 3, 3, 3, 3]
    (words,) = tokenize(backend, ["the " + "xq" * LONGEST_WORD + " cat"])
    assert [word.blank_word for word in words] == [0] + [1] * (len(words) - 2) + [2]


def test_words_are_cut_as_bert_cuts_them(backend) -> None:
    (words,) = tokenize(backend, ["The cat, it's  \u6211\u4eec Caf\u00e9"])
    assert [word.form for word in words] == ["the", "cat", ",", "it", "'", "s", "\u6211", "\u4eec", "caf\u00e9"]


def test_a_word_has_the_same_pieces_everywhere(backend) -> None:
    alone, first, inside, glued = (tokenize(backend, [line])[0] for line in ("cat", "Cat sat", "the cat", "3,cat."))
    assert alone[0].pieces == first[0].pieces == inside[1].pieces == glued[2].pieces


def test_forms_are_composed_and_lower_case(backend) -> None:
    (words,) = tokenize(backend, ["CAFE\u0301"])
    assert words[0].form == "caf\u00e9"


@pytest.mark.parametrize(
    "word", ["\u092a\u0924\u094d\u0924\u093f\u092f\u093e\u0902", "\u05e9\u05dd\u0323", "e\u0302\u0323"]
)
def test_the_form_of_a_word_keeps_the_marks_that_its_tokenizer_strips(word: str) -> None:
    """Offsets end before them: Hindi words in -am were never found in a dictionary by an uncased tokenizer."""
    uncased = Tokenizer(models.WordLevel({"[UNK]": 0}, "[UNK]"))
    uncased.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
    uncased.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    found = tokenize_lines(uncased, [f"{word} b {word}. {word}", word])
    form = look_up_form(word)
    assert found.forms == [form, "b", form, ".", form, form]


@pytest.mark.parametrize("text", ["the [MASK] cat", "[PAD][CLS] [SEP]", "a[UNK]b"])
def test_a_special_token_spelt_out_in_text_is_text(backend, text: str) -> None:
    pieces = [piece for word in tokenize(backend, [text])[0] for piece in word.pieces]
    assert not {0, 2, 3, 4} & set(pieces)
    backend.encode_special_tokens = False  # as transformers leaves it
    assert not {0, 2, 3, 4} & set(tokenize_words(backend, [text])[0])


def test_a_tokenizer_that_was_used_can_be_freed(backend) -> None:
    own = Tokenizer.from_str(backend.to_str())
    kept = weakref.ref(own)
    tokenize_words(own, ["the cat"])
    del own
    assert kept() is None, "each encoder of a study left 300 MB in the process that scored it"


def test_a_character_that_was_never_seen_is_unknown(backend) -> None:
    (words,) = tokenize(backend, ["cat \u2603"])
    assert words[1].pieces[-1] == 1
    assert words[1].form == "\u2603"


def test_a_word_of_too_many_pieces_is_cut_into_pieces(backend) -> None:
    (words,) = tokenize(backend, ["cat " + "xq" * LONGEST_WORD])
    assert words[0].form == "cat"
    assert len(words) > 2 * LONGEST_WORD
    assert all(word.form == "" and len(word.pieces) == 1 for word in words[1:])
    (short,) = tokenize(backend, ["xqx"], longest=2)
    assert all(len(word.pieces) == 1 for word in short)


def test_lines_without_words_give_no_words(backend) -> None:
    assert tokenize(backend, ["", "  ", "cat"]) == [[], [], [Word(tokenize(backend, ["cat"])[0][0].pieces, "cat", 0)]]
    assert tokenize(backend, []) == []


def test_case_is_kept_where_asked_for() -> None:
    cased = train_bpe(BpeTokenizer(vocab_size=300, lowercase=False), lambda: LINES)
    upper, lower = tokenize(cased, ["The the"])[0]
    assert upper.pieces != lower.pieces
    assert upper.form == lower.form == "the"


def test_the_tokenizer_adds_special_tokens_for_its_users() -> None:
    tokens = train_bpe(BpeTokenizer(vocab_size=300), lambda: LINES).encode("the cat", "the mat").tokens
    assert tokens == ["[CLS]", "\u2581the", "\u2581cat", "[SEP]", "\u2581the", "\u2581mat", "[SEP]"]


def test_a_first_word_behind_a_prompt_has_the_blank_that_is_before_it() -> None:
    pieces = {"q": 0, ":": 1, "\u0120": 2, "a": 3, "\u0120a": 4, "b": 5}
    backend = Tokenizer(models.BPE(pieces, [("\u0120", "a")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    backend.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    assert tokenize_behind(backend, "q: ", [3]) == [0, 1, 4]
    assert tokenize_behind(backend, "q:", [3]) == [0, 1, 3]
    assert tokenize_behind(backend, "q: ", [5]) == [0, 1, 2, 5]
    assert tokenize_behind(backend, "q: ", [4]) == [0, 1, 2, 4], ()


def test_an_unknown_first_word_stays_unknown_behind_a_prompt() -> None:
    backend = Tokenizer(models.WordLevel({"[UNK]": 0, "q": 1, ":": 2, "b": 3}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]
    backend.add_special_tokens(["[UNK]"])
    assert tokenize_behind(backend, "q: ", [0]) == [1, 2, 0]
    assert tokenize_behind(backend, "q: ", [3]) == [1, 2, 3]
