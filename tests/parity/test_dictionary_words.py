"""Dictionary words have the pieces that they have inside a sentence, for every kind of tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.parity.tokenizer_zoo import LOCAL, NOT_LOCAL, WORDS
from xalign_ray.models.tokenized import Inputs
from xalign_ray.tokens.vocabulary import tokenize_labels
from xalign_ray.vocabulary.cached_tokenizer import CachedTokenizer
from xalign_ray.vocabulary.dictionary import look_up_form
from xalign_ray.vocabulary.tokenizer_folder import open_tokenizer, save_tokenizer, wrap_tokenizer

KINDS = [*LOCAL, "with_phrase_added"]  # where a word's pieces do not depend on its neighbours
FORMS = sorted({look_up_form(word) for word in WORDS} | {"watermelons", "katzen", "newyork", "a", "x", "the"})


class Everything(dict):
    """A dictionary that has an entry for every form it is asked for."""

    def __bool__(self) -> bool:
        return True

    def get(self, key: tuple[int, str], _default: int) -> int:  # type: ignore[override]
        return self.setdefault(key, len(self))


def inside_a_sentence(backend: Tokenizer, word: str) -> list[int]:
    """The pieces that lie within the word and the blank before it, by the tokenizer's own offsets."""
    backend.no_truncation()
    backend.no_padding()
    before = "the cat,"
    encoding = backend.encode(f"{before} {word} mat", add_special_tokens=False)
    begin, end = len(before), len(before) + 1 + len(word)
    return [
        piece
        for piece, (first, last) in zip(encoding.ids, encoding.offsets, strict=True)
        if begin <= first and last <= end
    ]


@pytest.mark.parametrize("name", KINDS)
def test_a_dictionary_word_is_cut_as_inside_a_sentence(name: str, tmp_path: Path) -> None:
    tokenizer = wrapped((LOCAL | NOT_LOCAL)[name](), tmp_path)
    unknown = tokenizer.unk_token_id
    found = tokenize_labels(tokenizer, {(0, word): word for word in FORMS})
    usable = {word: pieces for (_, word), pieces in found.items() if pieces is not None}
    assert len(usable) > len(FORMS) // 2
    for word, pieces in usable.items():
        assert list(pieces) == inside_a_sentence(tokenizer.backend_tokenizer, word), word
        assert unknown not in pieces


@pytest.mark.parametrize("name", KINDS)
def test_tasks_cut_words_as_inside_a_sentence(name: str, tmp_path: Path) -> None:
    tokenizer = wrapped((LOCAL | NOT_LOCAL)[name](), tmp_path)
    inputs = Inputs(tokenizer, (), (), (), 512, (), 1, "none")
    for word, pieces in zip(FORMS, inputs.piece_words(FORMS), strict=True):
        assert pieces == inside_a_sentence(tokenizer.backend_tokenizer, word), word


@pytest.mark.parametrize("name", LOCAL)
def test_a_word_found_in_a_sentence_has_the_pieces_of_its_entry(name: str, tmp_path: Path) -> None:
    tokenizer = wrapped(LOCAL[name](), tmp_path)
    pieces = tokenize_labels(tokenizer, {(0, word): word for word in FORMS})
    entries = Everything()
    usable = [word for word in FORMS if pieces[0, word] is not None]
    cached = CachedTokenizer(tokenizer.backend_tokenizer, entries)
    whole = 0
    for word in usable:
        cut = cached.tokenize([f"the {word} mat"], 0)
        if len(cut.word_length) != 3 or "\U0001f600" in word:  # it's, or a letter and a sign: no single word to look up
            continue
        assert cut.entry[1] == entries[0, word]
        begin, end = cut.word_length[0], cut.word_length[0] + cut.word_length[1]
        assert tuple(cut.pieces[begin:end].tolist()) == pieces[0, word], word
        whole += 1
    assert whole > len(FORMS) // 3


def test_where_pieces_run_over_blanks_those_of_a_word_hold_nothing_else(tmp_path: Path) -> None:
    tokenizer = wrapped(NOT_LOCAL["over_blanks"](), tmp_path)
    for (_, word), pieces in tokenize_labels(tokenizer, {(0, word): word for word in FORMS}).items():
        if pieces is not None:
            told = "".join(tokenizer.backend_tokenizer.id_to_token(piece) for piece in pieces)
            assert told.removeprefix("\u2581") == word


def wrapped(backend: Tokenizer, folder: Path):
    save_tokenizer(wrap_tokenizer(backend), folder)
    return open_tokenizer(str(folder))
