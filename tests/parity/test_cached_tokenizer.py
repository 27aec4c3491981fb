"""The cached tokenizer: the same pieces and words as the tokenizer's own, for every family, on hostile lines."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from tests.parity.slow_words import Word, tokenize_slowly
from tests.parity.tokenizer_zoo import LOCAL, NOT_LOCAL, hostile_lines
from xalign_ray.shards.rows import NO_ENTRY, NO_WORD
from xalign_ray.vocabulary.cached_tokenizer import CachedTokenizer, EncodedLines, find_pretoken_rules
from xalign_ray.vocabulary.tokenizer import LONGEST_WORD


class Forms(dict):
    """A dictionary that has an entry for every form it is asked for."""

    def __bool__(self) -> bool:
        return True

    def get(self, key: tuple[int, str], _default: int) -> int:  # type: ignore[override]
        return self.setdefault(key, len(self)) if key[1] else NO_ENTRY


def as_words(cut: EncodedLines, forms: Forms) -> list[list[Word]]:
    names = {number: form for (_, form), number in forms.items()} | {NO_ENTRY: "", NO_WORD: ""}
    pieces, lengths = iter(cut.pieces.tolist()), cut.word_length.tolist()
    words = iter(
        [
            Word(tuple(next(pieces) for _ in range(length)), names[entry], blank)
            for length, entry, blank in zip(lengths, cut.entry.tolist(), cut.blank_word.tolist(), strict=True)
        ]
    )
    return [[next(words) for _ in range(count)] for count in cut.line_words.tolist()]


def assert_exact(backend: Tokenizer, lines: list[str], tokenizer: CachedTokenizer, forms: Forms, longest: int) -> None:
    wanted = tokenize_slowly(backend, lines, longest)
    found = as_words(tokenizer.tokenize(lines, 0, place=True), forms)
    assert [(line, f) for line, f, w in zip(lines, found, wanted, strict=True) if f != w] == []


EACH = [*LOCAL, *NOT_LOCAL]


@pytest.mark.parametrize(
    ("name", "longest"), [*((name, LONGEST_WORD) for name in EACH), *((name, 2) for name in EACH[::4])]
)
def test_pieces_words_forms_and_places_are_the_tokenizers_own(name: str, longest: int) -> None:
    backend, forms = (LOCAL | NOT_LOCAL)[name](), Forms()
    tokenizer = CachedTokenizer(backend, forms, longest)
    for seed in (0, 1, 0):  # the third time all pretokens are known
        assert_exact(backend, hostile_lines(200, seed), tokenizer, forms, longest)


@pytest.mark.parametrize("name", LOCAL)
def test_where_places_are_not_asked_for_the_rest_is_the_same(name: str) -> None:
    backend, forms, lines = LOCAL[name](), Forms(), hostile_lines(200, 7)
    found = as_words(CachedTokenizer(backend, forms).tokenize(lines, 0), forms)
    wanted = tokenize_slowly(backend, lines)
    for line, ours, theirs in zip(lines, found, wanted, strict=True):
        assert [(w.pieces, w.form) for w in ours] == [(w.pieces, w.form) for w in theirs], line


def test_a_full_cache_forgets_and_stays_exact() -> None:
    backend, forms, limit = LOCAL["byte_bpe"](), Forms(), 400_000
    tokenizer = CachedTokenizer(backend, forms, cache_bytes=limit)
    sizes = []
    for seed in range(12):
        lines = [f"{line} w{seed}x{n}" for n, line in enumerate(hostile_lines(150, seed))]
        assert_exact(backend, lines, tokenizer, forms, LONGEST_WORD)
        sizes.append(tokenizer.cached_bytes)
    assert max(sizes) <= limit
    assert sorted(sizes) != sizes, "it grew and was cut down again"


@pytest.mark.parametrize("name", LOCAL)
def test_tokenizers_that_cut_word_by_word_are_known(name: str) -> None:
    assert find_pretoken_rules(LOCAL[name](), LONGEST_WORD) is not None


@pytest.mark.parametrize("name", NOT_LOCAL)
def test_tokenizers_that_look_over_blanks_are_known(name: str) -> None:
    assert find_pretoken_rules(NOT_LOCAL[name](), LONGEST_WORD) is None
