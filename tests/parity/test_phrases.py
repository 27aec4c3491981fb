"""Dictionary entries of several words: those that a slow search finds, for every kind of tokenizer."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from tests.parity.slow_words import find_slowly, split_entries, tokenize_slowly
from tests.parity.tokenizer_zoo import LOCAL, NOT_LOCAL, hostile_lines
from xalign_ray.vocabulary.cached_tokenizer import CachedTokenizer
from xalign_ray.vocabulary.dictionary import look_up_form
from xalign_ray.vocabulary.tokenizer import LONGEST_WORD

LETTERS = "\u4e2d\u56fd\u4eba\u6c11\u65e5\u672c\u306e\u30ab\u30fc\u0e44\u0e17\u0e22\u0e01\u0e31\u0e19"
SPOKEN = ("the", "cat", "sat", "it's", "e-mail", "3.14", "Stra\xdfe", "\u0434\u043e\u043c", "\u4e2d", "(the)", "x")
OTHERS = (" ", "", "", "", ", ", "\u3002", "x", " cat ", "(", "1", "\u300a", "\n", "\u0301")


def pieces_of_han() -> Tokenizer:
    """Unigram with pieces of several letters, some with punctuation: a piece may cross the border of an entry."""
    source = random.Random(3)
    runs = {"".join(source.choices(LETTERS, k=source.randrange(2, 4))) for _ in range(60)}
    pieces = [("<unk>", 0.0), ("\u2581", -3.0), *((letter, -4.0) for letter in LETTERS)]
    pieces += [(run, -5.0) for run in sorted(runs)] + [(f"\u3002{LETTERS[0]}", -4.5), (f"{LETTERS[1]}\u300a", -4.5)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = LOCAL | NOT_LOCAL | {"pieces_of_han": pieces_of_han}


@cache
def dictionary(seed: int) -> dict[str, int]:
    """Runs of letters of scripts without blanks and of words, some of them beginnings of others."""
    source = random.Random(seed)
    forms = {"".join(source.choices(LETTERS, k=source.randrange(1, 6))) for _ in range(80)} | {"cat", "x", "the"}
    forms |= {form[:-1] for form in sorted(forms)[::3] if len(form) > 2} | {"ab" + LETTERS[0], LETTERS[0] * 20}
    forms |= {look_up_form(" ".join(source.choices(SPOKEN, k=source.randrange(2, 5)))) for _ in range(150)}
    forms |= {"the cat", "it's the", "e-mail", "e-mail the cat", "'s the", "-- the", "u.s.a", "cat " * 16 + "cat"}
    return {form: number for number, form in enumerate(sorted(forms))}


def lines(seed: int) -> list[str]:
    source = random.Random(seed)
    forms = sorted(dictionary(0))
    parts = [
        [*source.choices(LETTERS, k=3), *source.choices(forms, k=4), *source.choices(OTHERS, k=4)] for _ in range(80)
    ]
    for part in parts:
        source.shuffle(part)
    spoken = [source.choices((*SPOKEN, *forms, "cat,", "(The", "Cat's"), k=12) for _ in range(80)]
    blanks = [source.choice((" ", " ", "  ", "\xa0")) for _ in spoken]
    words = [blank.join(line) for blank, line in zip(blanks, spoken, strict=True)]
    return ["".join(part) for part in parts] + words + hostile_lines(30, seed)


@pytest.mark.parametrize(
    ("name", "longest"), [*((name, LONGEST_WORD) for name in TOKENIZERS), *((name, 3) for name in [*TOKENIZERS][::4])]
)
def test_longest_entries_are_those_of_a_slow_search(name: str, longest: int) -> None:
    backend, forms = TOKENIZERS[name](), dictionary(0)
    phrases = split_entries(forms)
    other = {(1, form): 1000 + number for form, number in dictionary(1).items()}
    cached = CachedTokenizer(backend, {(0, form): number for form, number in forms.items()} | other, longest)
    several = 0
    for seed in (0, 1, 0):  # the third time all pretokens are known
        text = lines(seed)
        cut = cached.tokenize(text, 0)
        found = iter(zip(cut.parts.tolist(), cut.word_length.tolist(), cut.entry.tolist(), strict=True))
        for line, count, words in zip(
            text, cut.line_words.tolist(), tokenize_slowly(backend, text, longest), strict=True
        ):
            units = [(parts, pieces, max(entry, -1)) for parts, pieces, entry in (next(found) for _ in range(count))]
            assert units == find_slowly(words, forms, phrases, longest), line
            several += sum(parts > 1 for parts, *_ in units)
        assert cut.word_length.max() <= max(longest, 1)
        assert cut.word_length.sum() == len(cut.pieces)
    assert several > 80


@pytest.mark.models
def test_chinese_words_are_found_with_released_tokenizers(released_models: Path) -> None:
    """A piece that crosses the border of an entry hides it, so tokenizers differ; one letter a piece finds all."""
    entries = {(0, "\u4e2d\u56fd"): 0, (0, "\u5b66\u6821"): 1, (0, "\u4eba"): 2}
    for name in ("minilm", "e5-small", "llama3", "gemma"):
        backend = Tokenizer.from_file(str(released_models / name / "tokenizer.json"))
        cut = CachedTokenizer(backend, entries).tokenize(["\u4e2d\u56fd, \u5b66\u6821."], 0)
        assert [entry for entry in cut.entry.tolist() if entry >= 0] == [0, 1], name
