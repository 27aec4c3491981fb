"""Words that masking takes as one are the words a reader names, with tokenizers of the four families."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from xalign_ray.config.sources import BpeTokenizer
from xalign_ray.vocabulary.tokenizer import TokenizedLines, tokenize_lines, train_bpe

TEXTS = {
    "english": "The cat sat, it's a watermelon (3.5 kg).",
    "german": "Der Hund l\u00e4uft \u00fcber die Stra\u00dfe.",
    "russian": ("\u041a\u043e\u0448\u043a\u0430 \u0441\u0438\u0434\u0438\u0442 \u043d\u0430 \u043e\u043a\u043d\u0435."),
    "arabic": (
        "\u0630\u0647\u0628 \u0627\u0644\u0648\u0644\u062f \u0625\u0644\u0649 \u0627\u0644\u0645"
        "\u062f\u0631\u0633\u0629"
    ),
    "korean": "\ub098\ub294 \ud559\uad50\uc5d0 \uac04\ub2e4.",
    "hindi": "\u092e\u0948\u0902 \u0918\u0930 \u091c\u093e \u0930\u0939\u093e \u0939\u0942\u0901",
    "chinese": "\u6211\u4eec\u4eca\u5929\u53bb\u5b66\u6821\u3002",
    "japanese": "\u4eca\u65e5\u306f\u5b66\u6821\u3078\u884c\u304d\u307e\u3059\u3002",
    "thai": (
        "\u0e27\u0e31\u0e19\u0e19\u0e35\u0e49\u0e09\u0e31\u0e19\u0e44\u0e1b\u0e42\u0e23\u0e07\u0e40"
        "\u0e23\u0e35\u0e22\u0e19\u0e01\u0e31\u0e1a\u0e40\u0e1e\u0e37\u0e48\u0e2d\u0e19\u0e02\u0e2d"
        "\u0e07\u0e09\u0e31\u0e19"
    ),
}
# What a reader takes for words; Chinese characters and kana one by one.
READ = {
    "english": "the|cat|sat|,|it|'|s|a|watermelon|(|3|.|5|kg|)|.",
    "german": "der|hund|l\u00e4uft|\u00fcber|die|stra\u00dfe|.",
    "russian": (
        "\u043a\u043e\u0448\u043a\u0430|\u0441\u0438\u0434\u0438\u0442|\u043d\u0430|\u043e\u043a\u043d\u0435|."
    ),
    "arabic": (
        "\u0630\u0647\u0628|\u0627\u0644\u0648\u0644\u062f|\u0625\u0644\u0649|\u0627\u0644\u0645"
        "\u062f\u0631\u0633\u0629"
    ),
    "korean": "\ub098\ub294|\ud559\uad50\uc5d0|\uac04\ub2e4|.",
    "hindi": "\u092e\u0948\u0902|\u0918\u0930|\u091c\u093e|\u0930\u0939\u093e|\u0939\u0942\u0901",
    "chinese": "\u6211|\u4eec|\u4eca|\u5929|\u53bb|\u5b66|\u6821|\u3002",
    "japanese": "\u4eca|\u65e5|\u306f|\u5b66|\u6821|\u3078|\u884c|\u304d|\u307e|\u3059|\u3002",
}

LINES = list(TEXTS.values()) * 30 + ["the cat the dog water melon sit run kg"] * 30


def _word_piece() -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # The alphabet and the shortest pieces only, so that most words have several.
    made.train_from_iterator(
        LINES, trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]"], show_progress=False)
    )
    return made


def _bpe() -> Tokenizer:
    return train_bpe(BpeTokenizer(vocab_size=170), lambda: LINES)


def _byte_level() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False))
    return made


def _unigram() -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.train_from_iterator(
        LINES, trainers.UnigramTrainer(vocab_size=140, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False)
    )
    return made


FAMILIES: dict[str, Callable[[], Tokenizer]] = {
    "word_piece": _word_piece,
    "bpe": _bpe,
    "byte_level": _byte_level,
    "unigram": _unigram,
}


@cache
def cut(family: str, text: str) -> TokenizedLines:
    return tokenize_lines(_train(family), [TEXTS[text]])


@cache
def _train(family: str) -> Tokenizer:
    return FAMILIES[family]()


SPACED = [text for text in READ if text not in ("chinese", "japanese")]


@pytest.mark.parametrize("family", ["word_piece", "bpe", "unigram"])
@pytest.mark.parametrize("text", SPACED)
def test_every_tokenizer_finds_the_words_of_a_reader(family: str, text: str) -> None:
    assert cut(family, text).forms == READ[text].split("|")


@pytest.mark.parametrize("text", SPACED)
def test_a_byte_level_piece_of_letters_and_punctuation_is_the_word_of_its_letters(text: str) -> None:
    wanted = READ[text].replace("it|'|s|", "it|s|").replace(")|.", ").")  # the pieces `'s` and `).`
    assert cut("byte_level", text).forms == wanted.split("|")


@pytest.mark.parametrize("family", ["word_piece", "bpe"])
@pytest.mark.parametrize("text", ["chinese", "japanese"])
def test_characters_that_share_no_piece_are_words_one_by_one(family: str, text: str) -> None:
    assert cut(family, text).forms == READ[text].split("|")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("text", ["chinese", "japanese", "thai"])
def test_words_of_scripts_without_blanks_are_what_shares_pieces(family: str, text: str) -> None:
    words = cut(family, text)
    assert "".join(words.forms) == TEXTS[text]
    assert len(words.forms) > 3
    assert "" not in words.forms


def test_characters_that_share_a_piece_are_one_word() -> None:
    assert cut("unigram", "chinese").forms[-2:] == ["\u5b66\u6821", "\u3002"]
    assert cut("byte_level", "chinese").forms[1:3] == ["\u5929", "\u53bb\u5b66\u6821"]
