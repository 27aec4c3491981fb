"""The cached tokenizer: the same pieces and words as the tokenizer's own, for every family, on hostile lines."""

from __future__ import annotations

import random
import re

import pytest
from tokenizers import Tokenizer

from tests.parity.slow_words import Word, tokenize_slowly
from tests.parity.tokenizer_zoo import HOSTILE, LOCAL, NOT_LOCAL, hostile_lines
from xalign_ray.shards.rows import NO_ENTRY, NO_WORD
from xalign_ray.vocabulary import cached_tokenizer
from xalign_ray.vocabulary.cached_tokenizer import CachedTokenizer, EncodedLines, find_pretoken_rules
from xalign_ray.vocabulary.new_pieces import extend_tokenizer
from xalign_ray.vocabulary.tokenizer import LONGEST_WORD, tokenize_lines


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


@pytest.mark.parametrize("name", [*LOCAL, *NOT_LOCAL])
@pytest.mark.parametrize("longest", [LONGEST_WORD, 2])
def test_pieces_words_forms_and_places_are_the_tokenizers_own(name: str, longest: int) -> None:
    backend, forms = (LOCAL | NOT_LOCAL)[name](), Forms()
    tokenizer = CachedTokenizer(backend, forms, longest)
    for seed in (0, 1, 0):  # the third time all pretokens are known
        assert_exact(backend, hostile_lines(300, seed), tokenizer, forms, longest)


@pytest.mark.parametrize("name", LOCAL)
def test_where_places_are_not_asked_for_the_rest_is_the_same(name: str) -> None:
    backend, forms, lines = LOCAL[name](), Forms(), hostile_lines(600, 7)
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


def test_a_hostile_line_alone_is_exact_too() -> None:
    for make in LOCAL.values():
        backend, forms = make(), Forms()
        tokenizer = CachedTokenizer(backend, forms)
        for line in HOSTILE:
            assert_exact(backend, [line], tokenizer, forms, LONGEST_WORD)


COMPANY = (
    *("{}", "{},", "({})", "{}s", "x{}", "x-{}", "{}{}", "{}-{}", "{}\u0301", "'{}'s", "{}.{}", "  {}", "{} ", "the"),
    *("\u00a0{}", "{}\u00ad", "_{}", "{}1", "\u2581{}", "\u201e{}\u201c", "cat", "\u4e2d{}", "{}\u6587"),
)
HAN = re.compile("[\u4e00-\u9fff]")


def extended(name: str) -> tuple[Tokenizer, list[str]]:
    """A tokenizer with new whole words, and lines in which they stand in all kinds of company."""
    common = ["hund Katze na\xefve \u0420\u0435\u043a\u0430 the"] * 9
    backend, rows = extend_tokenizer(LOCAL[name](), [*hostile_lines(400, 11), *common], 60, {}, 1)
    words = [backend.id_to_token(number) for number in rows]
    source = random.Random(name)

    def text() -> str:
        form = source.choice((str, str.lower, str.upper, str.capitalize))
        return source.choice(COMPANY).replace("{}", form(source.choice(words)))

    return backend, [" ".join(text() for _ in range(source.randrange(1, 8))) for _ in range(800)]


def cut_pieces(words: list[list[Word]]) -> list[list[tuple[int, ...]]]:
    return [[word.pieces for word in line] for line in words]


@pytest.mark.parametrize("name", LOCAL)
def test_new_pieces_are_cut_as_the_tokenizer_cuts_them(name: str) -> None:
    backend, lines = extended(name)
    forms, lines = Forms(), [*lines, *hostile_lines(200, 11)]
    tokenizer, wanted = CachedTokenizer(backend, forms), tokenize_slowly(backend, lines)
    for _ in range(2):
        assert cut_pieces(as_words(tokenizer.tokenize(lines, 0, place=True), forms)) == cut_pieces(wanted)
        assert cut_pieces(as_words(tokenizer.tokenize(lines, 0), forms)) == cut_pieces(wanted)
    # Where a tokenizer puts a blank behind a Chinese character, its offsets add that character to the next new word.
    assert_exact(backend, [line for line in lines if not HAN.search(line)], tokenizer, forms, LONGEST_WORD)


@pytest.mark.parametrize("name", LOCAL)
def test_a_new_word_behind_a_chinese_character_has_its_own_form(name: str) -> None:
    backend, _ = extend_tokenizer(LOCAL[name](), ["hund Katze vogel"], 3, {}, 1)
    assert tokenize_lines(backend, ["the \u4e2d hund"]).forms[-1] == "hund"


@pytest.mark.parametrize("name", LOCAL)
def test_lines_with_new_pieces_are_asked_for_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, rows = extend_tokenizer(LOCAL[name](), ["hund Katze vogel"], 3, {}, 1)
    lines = ["the hund, Katze (vogel) hundes", "a hund sat"]
    tokenizer = CachedTokenizer(backend, {})
    first = tokenizer.tokenize(lines, 0)
    assert len(rows) == 3
    monkeypatch.setattr(cached_tokenizer, "tokenize_lines", lambda *_, **__: pytest.fail("it is asked again"))
    assert tokenizer.tokenize(lines, 0).pieces.tolist() == first.pieces.tolist()
