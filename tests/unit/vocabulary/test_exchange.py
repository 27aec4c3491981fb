"""Pieces of every kind of vocabulary stand for the same, and rows start from the right ones."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from xalign_ray.vocabulary.exchange import fertility, find_shared, read_pieces, start_rows


def word_piece() -> Tokenizer:
    pieces = ["[UNK]", "the", "##ing", ",", "über", "##über", "th", "##e", "house", "big"]
    made = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    return made


def sentence_piece() -> Tokenizer:
    whole = ["the", "über", "", "The", "Haus", "zzz", "groß"]
    pieces = ["<unk>", "ing", ",", "über", "<0x0A>", *(f"\u2581{piece}" for piece in whole)]
    made = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=0))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    return made


def byte_level() -> Tokenizer:
    pieces = ["\u0120the", "ing", ",", "\u0120\u00c3\u00bcber", "\u00c3\u00bcber", "\u00c3", "\u010a", "\u0120the,"]
    made = Tokenizer(models.BPE({piece: number for number, piece in enumerate(pieces)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return made


@pytest.mark.parametrize("new", [word_piece, sentence_piece, byte_level])
@pytest.mark.parametrize("old", [word_piece, sentence_piece, byte_level])
def test_shared_pieces_are_those_that_stand_for_the_same(old, new) -> None:
    theirs, ours = old(), new()
    pieces = [read_pieces(one, [0] if one.id_to_token(0) in ("[UNK]", "<unk>") else []) for one in (theirs, ours)]
    shared = find_shared(pieces[0], pieces[1])
    found = {(ours.id_to_token(mine), theirs.id_to_token(its)) for mine, its in shared.items()}
    written = {
        word_piece: ("the", "##ing", ",", "über", "##über"),
        sentence_piece: ("\u2581the", "ing", ",", "\u2581über", "über"),
        byte_level: ("\u0120the", "ing", ",", "\u0120\u00c3\u00bcber", "\u00c3\u00bcber"),
    }
    assert found >= set(zip(written[new], written[old], strict=True))
    if {old, new} == {sentence_piece, byte_level}:
        assert ("\u010a", "<0x0A>") in found or ("<0x0A>", "\u010a") in found
    if old is not new:
        assert len(found) == 5 + ({old, new} == {sentence_piece, byte_level})


def test_a_letter_is_copied_from_the_letter_and_not_from_its_byte() -> None:
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "a", "\u2581a"]
    theirs = Tokenizer(models.BPE({one: n for n, one in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True))
    ours = Tokenizer(models.BPE({"<unk>": 0, "a": 1, "<0x0A>": 2}, [], unk_token="<unk>", byte_fallback=True))
    shared = find_shared(read_pieces(theirs, [0]), read_pieces(ours, [0]))
    assert shared == {1: pieces.index("a"), 2: pieces.index("<0x0A>")}


def test_rows_start_from_copies_translations_pieces_or_nothing() -> None:
    old, new = word_piece(), sentence_piece()
    translations = {"haus": ["house", "the big house"], "the": ["house"], "groß": ["unknown"]}
    rows, counts = start_rows(old, new, {0: 0}, 0, translations)
    olds, weights = iter(rows.olds.tolist()), iter(rows.weights.tolist())
    starts = {
        str(new.id_to_token(number)): {next(olds): next(weights) for _ in range(count)}
        for number, count in enumerate(rows.counts.tolist())
    }
    assert starts["<unk>"] == {0: 1.0}
    assert starts["\u2581the"] == {1: 1.0}, "shared, whatever the dictionary has"
    assert starts["\u2581The"] == {1: 1.0}, "the pieces of its text in the old tokenizer's case"
    assert starts["\u2581Haus"] == {8: 1.0}, "its translation of one piece"
    assert starts["\u2581zzz"] == starts["\u2581groß"] == starts["\u2581"] == {}, "the old vocabulary cannot write them"
    assert counts == {"copied": 6, "from_translations": 1, "from_similar": 0, "from_pieces": 1, "random": 4}
    assert start_rows(old, new, {0: 0}, 0, {}, from_pieces=False)[1]["random"] == 6


def test_fertility_is_pieces_for_each_word_and_the_share_of_unknown_ones() -> None:
    assert fertility(word_piece(), ["the the, the", "theing"]) == pytest.approx((6 / 4, 0))
    backend = word_piece()
    backend.add_special_tokens(["[UNK]"])
    assert fertility(backend, ["the \u0f40 the \u0f40"]) == pytest.approx((1, 1 / 2))
