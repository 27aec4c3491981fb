"""Gives a tokenizer words or subwords as new pieces, and says which old pieces' rows each starts from.

Formulas, and how the papers were read: docs/explanation/methods.md, New pieces for a vocabulary.
"""

from __future__ import annotations

import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tokenizers import AddedToken, Tokenizer

from xalign_ray.text.look_up import look_up_form
from xalign_ray.text.tokenizer import tokenize_words
from xalign_ray.text.vocabulary import join_pieces


def extend_tokenizer(
    tokenizer: Tokenizer, lines: Iterable[str], count: int, translations: Mapping[str, Sequence[str]], unknown: int
) -> tuple[Tokenizer, dict[int, list[int]]]:
    """The tokenizer with the commonest words that it splits into several pieces as one piece each; the same every time.

    The words are added tokens, which every fast tokenizer can hold whatever its model: they are matched as whole words
    before the rest is tokenized, so a longer word with one of them inside is tokenized as before, and so is all other
    text, but for a mark of its own that tokenizers of SentencePiece's kind put before punctuation that follows. Words
    are what stands between blanks without the punctuation around it: languages written without blanks gain nothing.

    Args:
        tokenizer: stays as it is.
        lines: text of the new languages.
        count: at most so many new pieces.
        translations: trained pairs of the dictionary, never held-out ones: a word by `look_up_form`, and its
            translations.
        unknown: id of the unknown piece.

    Returns:
        The new tokenizer, and for each new id the ids of old pieces whose mean row it starts as.
    """

    def tokenize(word: str) -> list[int]:
        return tokenize_words(tokenizer, [word])[0]

    normalize = tokenizer.normalizer.normalize_str if tokenizer.normalizer else str
    seen = _count_words(lines, normalize)
    ranked = sorted((word for word in seen if len(word) > 1), key=lambda word: (-seen[word], word))
    chosen: list[str] = []
    for word in ranked:
        if len(chosen) == count:
            break
        pieces = tokenize(word)
        if len(pieces) > 1 or unknown in pieces:
            chosen.append(word)
    extended = Tokenizer.from_str(tokenizer.to_str())
    extended.add_tokens([AddedToken(word, single_word=True, lstrip=True, normalized=True) for word in chosen])
    numbers = extended.get_vocab()
    return extended, choose_rows({numbers[word]: word for word in chosen}, tokenize, translations, unknown)


def add_subwords(
    tokenizer: Tokenizer, lines: Iterable[str], count: int, whole: Collection[int]
) -> tuple[Tokenizer, dict[int, list[int]]]:
    """The tokenizer with the commonest neighbours inside words joined; see `join_pieces`, which it returns."""
    normalize = tokenizer.normalizer.normalize_str if tokenizer.normalizer else str
    words = _count_words(lines, normalize)
    cut = dict(zip(words, tokenize_words(tokenizer, [*words]), strict=True))
    return join_pieces(tokenizer, words, cut, count, whole)


def _count_words(lines: Iterable[str], normalize: Callable[[str], str]) -> Counter[str]:
    """Runs of letters and their marks, of two characters or more, that blanks and punctuation alone set apart."""
    given: Counter[str] = Counter()
    for line in lines:
        given.update(line.split())
    words: Counter[str] = Counter()
    for between_blanks, count in given.items():  # each of them looked at once, however often it stands in the text
        for word in normalize(between_blanks).split():
            if inner := word if word.isalpha() else _inner(word.strip(string.punctuation)):
                words[inner] += count
    return words


def _inner(word: str) -> str:
    """A word without the signs around it; empty if there are others inside."""
    if word.isalpha():
        return word
    kinds = [unicodedata.category(character)[0] for character in word]
    inside = [place for place, kind in enumerate(kinds) if kind in "LMN"]
    is_word = inside and set(kinds[inside[0] : inside[-1] + 1]) <= {"L", "M"}
    return word[inside[0] : inside[-1] + 1] if is_word else ""


def choose_rows(
    words: Mapping[int, str],
    tokenize: Callable[[str], Sequence[int]],
    translations: Mapping[str, Sequence[str]],
    unknown: int,
) -> dict[int, list[int]]:
    """For each new piece the ids of old pieces whose mean row it starts as.

    A word of the dictionary starts as the words that translate it, those of them that are one piece of the old
    vocabulary: where dictionary_alignment would pull it. Any other starts as the pieces that it was split into before.

    Args:
        words: each new piece's id and the word that it is.
        tokenize: the old tokenizer: the pieces of a word as it stands inside a sentence, at least one.
        translations: the dictionary's words, by `look_up_form`, and their translations.
        unknown: id of the unknown piece; it is used only where there is no other.
    """
    return {number: _rows_of(word, tokenize, translations, unknown) for number, word in words.items()}


def _rows_of(
    word: str, tokenize: Callable[[str], Sequence[int]], translations: Mapping[str, Sequence[str]], unknown: int
) -> list[int]:
    tokenized = [list(tokenize(translation)) for translation in translations.get(look_up_form(word), ())]
    whole = sorted({pieces[0] for pieces in tokenized if len(pieces) == 1} - {unknown})
    known = [piece for piece in tokenize(word) if piece != unknown]
    return whole or known or [unknown]
