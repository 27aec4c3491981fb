"""Fewer pieces, and joined ones: text is cut as before, whatever kind of model cuts it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from xalign_ray.vocabulary.surgery import add_subwords, count_pieces, keep_pieces, pieces_to_keep
from xalign_ray.vocabulary.tokenizer import tokenize_words

SPECIAL = ["<unk>", "<s>", "</s>"]
ENGLISH = ["The lower house knows the newest lowlands.", "Lower the widest windows, then show them!"] * 3
GERMAN = ["Das größte Haus der Länder.", "Die größten Häuser zeigen Fenster.", "Größer, am größten."] * 3
LETTERS = "".join(sorted({*"".join(GERMAN)} - {" "}))
TRAINED = [*ENGLISH, LETTERS, LETTERS[::-1], " ".join(LETTERS)]
OTHER = ["widened houses show größere Wände", "newlow landest", "日本 ☃", "unknown ẞ words"]


def word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(TRAINED, trainers.WordPieceTrainer(vocab_size=130, special_tokens=SPECIAL))
    tokenizer.post_processor = processors.BertProcessing(("</s>", 2), ("<s>", 1))
    return tokenizer


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=90, special_tokens=SPECIAL, unk_token="<unk>")
    tokenizer.train_from_iterator(TRAINED, trainer)
    tokenizer.add_special_tokens(["<mask>"])  # behind the pieces
    return with_template(tokenizer)


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=340, special_tokens=SPECIAL, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(TRAINED, trainer)
    tokenizer.add_special_tokens(["<mask>"])
    return with_template(tokenizer)


def byte_fallback() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    special = SPECIAL + [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=370, special_tokens=special)
    tokenizer.train_from_iterator(TRAINED, trainer)
    tree = json.loads(tokenizer.to_str())
    tree["added_tokens"] = tree["added_tokens"][: len(SPECIAL)]
    tokenizer = Tokenizer.from_str(json.dumps(tree))
    tokenizer.decoder = decoders.ByteFallback()
    return with_template(tokenizer)


def with_template(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return tokenizer


JOINED = 20  # such a small text has 29 or more, by the order in which ties were trained
KINDS = [word_piece, unigram, byte_level, byte_fallback]


def special_of(tokenizer: Tokenizer) -> set[int]:
    return {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}


@pytest.mark.parametrize("kind", KINDS)
def test_trimmed_tokenizer_cuts_text_of_kept_pieces_as_before(kind: Callable[[], Tokenizer]) -> None:
    old = kind()
    keep = pieces_to_keep(old, count_pieces(old, ENGLISH), special_of(old), 1)
    new = keep_pieces(old, keep)
    assert new.get_vocab_size() == len(keep) < old.get_vocab_size()
    kept = {number: place for place, number in enumerate(keep)}
    assert [new.id_to_token(place) for place in range(len(keep))] == [old.id_to_token(number) for number in keep]
    tried = 0
    for line in ENGLISH + GERMAN + OTHER:
        before = old.encode(line)
        if set(before.ids) <= kept.keys():
            tried += 1
            after = new.encode(line)
            assert after.ids == [kept[number] for number in before.ids]
            assert (after.offsets, after.tokens) == (before.offsets, before.tokens)
    assert tried >= len(ENGLISH)


def test_what_is_rare_goes_and_what_any_text_needs_stays() -> None:
    old = byte_level()
    counts = count_pieces(old, ENGLISH)
    few, many = (set(pieces_to_keep(old, counts, special_of(old), at_least)) for at_least in (4, 1))
    assert few < many
    assert {old.token_to_id(byte) for byte in pre_tokenizers.ByteLevel.alphabet()} <= few
    text = "日本 größte"
    assert keep_pieces(old, sorted(few)).encode(text).offsets[-1] == old.encode(text).offsets[-1]
    pieces = ["<unk>", "the", "##en", "größe", "дом", "##ом", "日本", "1", "aд"]
    old, counts = Tokenizer(models.WordPiece({piece: n for n, piece in enumerate(pieces)})), np.zeros(9, np.int64)
    counts[[1, 4]] = 2000, 1  # a word of another script, once: it stays, and its script does not
    kept = [pieces[number] for number in pieces_to_keep(old, counts, {0}, 1, whole_scripts=True)]
    assert kept == ["<unk>", "the", "##en", "größe", "дом", "1"]
    priced = Tokenizer(models.Unigram([("<unk>", 0.0), ("ab", -2.0), ("abc", -9.0)], 0))
    assert pieces_to_keep(priced, np.zeros(3, np.int64), {0}, 1) == [0, 2], "an unknown character costs what it did"


@pytest.mark.parametrize("kind", KINDS)
def test_joined_pieces_are_those_of_plain_byte_pair_encoding(kind: Callable[[], Tokenizer]) -> None:
    old = kind()
    new, parts = add_subwords(old, GERMAN, JOINED, {*special_of(old), 0})
    assert len(parts) == JOINED
    assert min(parts) == old.get_vocab_size()
    assert new.get_vocab_size() == old.get_vocab_size() + JOINED
    words = Counter(word.strip(".,") for line in GERMAN for word in line.split())
    pieces = dict(zip(words, tokenize_words(old, [*words]), strict=True))
    for number in parts:
        pairs: Counter[tuple[int, int]] = Counter()
        for word, ids in pieces.items():
            for pair in pairwise(ids):
                pairs[pair] += words[word]
        made = {pair for pair in pairs if parts_of(pair, parts) == parts[number]}
        assert made, new.id_to_token(number)
        assert max(pairs[pair] for pair in made) == max(
            times for pair, times in pairs.items() if joined(new, pair) not in old.get_vocab()
        )
        pieces = {word: replaced(ids, made, number) for word, ids in pieces.items()}


def parts_of(pair: tuple[int, int], parts: dict[int, list[int]]) -> list[int]:
    return [old for one in pair for old in parts.get(one, [one])]


def joined(tokenizer: Tokenizer, pair: tuple[int, int]) -> str:
    left, right = (str(tokenizer.id_to_token(one)) for one in pair)
    return left + right.removeprefix("##")


def replaced(ids: list[int], made: set[tuple[int, int]], number: int) -> list[int]:
    out: list[int] = []
    for one in ids:
        if out and (out[-1], one) in made:
            out[-1] = number
        else:
            out.append(one)
    return out


def test_a_unigram_model_gains_the_characters_that_it_cannot_write() -> None:
    old, lines = unigram(), ["བོད་སྐད་ bod", "བོད་ཡིག", "བོད་ལུགས"] * 2
    unknown = old.token_to_id("<unk>")
    assert unknown in old.encode("བོད").ids
    new, parts = add_subwords(old, lines, 20, {*special_of(old), unknown})
    assert len(parts) == 20
    for number, ids in parts.items():
        assert ids == [old.token_to_id(sign) or unknown for sign in str(new.id_to_token(number))]
    assert unknown not in new.encode("བོད་").ids
    assert len(new.encode("བོད་", add_special_tokens=False).ids) < 4  # the syllable and its mark have become one
    assert all(new.encode(line).ids == old.encode(line).ids for line in ENGLISH + GERMAN)


@pytest.mark.parametrize("kind", KINDS)
def test_text_is_cut_as_before_but_for_joined_neighbours(kind: Callable[[], Tokenizer]) -> None:
    old = kind()
    new, parts = add_subwords(old, GERMAN, JOINED, special_of(old))
    shorter = 0
    for line in ENGLISH + GERMAN + OTHER:
        before, after = old.encode(line).ids, new.encode(line).ids
        shorter += len(after) < len(before)
        if kind is not word_piece:  # which takes the longest piece first
            assert [part for one in after for part in parts.get(one, [one])] == before
    assert shorter >= len(GERMAN)
