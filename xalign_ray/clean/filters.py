"""Leaves out documents, lines and pairs that the recipe's filters do not let pass, each for the first reason."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xalign_ray.config.sources import FiltersConfig as Filters
from xalign_ray.config.sources import QualityConfig
from xalign_ray.shards.counter_random import mix
from xalign_ray.shards.rows import Index, starts
from xalign_ray.sources.language_id import READ_CHARACTERS, in_other_language
from xalign_ray.sources.records import Document
from xalign_ray.vocabulary.words import (
    IDEOGRAPH,
    NUMBER,
    PUNCTUATION,
    SYMBOL,
    Characters,
    count_words,
    has_letter,
    in_other_script,
    is_word,
    letters_a_word,
    read_characters,
    unit_words,
)

Kept = NDArray[np.bool_]
Item = TypeVar("Item")
Step = Callable[[Index], Mapping[str, Kept]]  # of those with these numbers, which are dropped for which reasons

OTHER_LANGUAGE = "in another language"
OTHER_SCRIPT = "not in the language's script"


@dataclass(frozen=True)
class Sifted:
    """Which of N pass: `keep` [N]; `dropped` has the numbers of the others by reason, ascending."""

    keep: Kept
    dropped: Mapping[str, Index]


def keep_documents(filters: Filters, language: str, documents: Sequence[Document]) -> Sifted:
    """Which documents, of one language, pass as a whole; this needs no tokenizer.

    Near-duplicates go last: a document that another rule drops is never the first copy.
    """
    near = np.asarray([document.near_duplicate for document in documents], bool)
    steps: list[Step] = [lambda some: low_quality(filters.quality, language, _take(documents, some))]
    if filters.language_threshold:
        steps.append(
            lambda some: {
                OTHER_LANGUAGE: in_other_language(
                    [_beginning(document) for document in _take(documents, some)],
                    language,
                    filters.language_threshold,
                    filters.language_model,
                )
            }
        )
    steps.append(lambda some: {"near-duplicate document": near[some]})
    return _sift(steps, np.ones(len(documents), bool))


def keep_lines(
    filters: Filters,
    language: str,
    lines: Sequence[str],
    words: NDArray[np.integer],
    pieces: Index,
    duplicate: Kept,
) -> Sifted:
    """Which lines pass.

    Args:
        words: of each line, as the tokenizer counts them; a line without any passes, since it makes no example anyway.
        pieces: of each line.
        duplicate: of each line with words that passes all other rules whether it stood somewhere before; or empty.
    """
    steps = _text_steps(filters, [(language, lines)], words[:, None], pieces[:, None])
    if len(duplicate):
        steps.append(lambda _: {"duplicate line": duplicate})
    sifted = _sift(steps, words > 0)
    return Sifted(sifted.keep | (words == 0), sifted.dropped)


def keep_pairs(
    filters: Filters,
    languages: Sequence[str],
    texts: Sequence[Sequence[str]],
    lengths: tuple[Index, Index],
    duplicate: Kept,
    near_duplicate: Kept,
    aligned: NDArray[np.floating] | None,
    considered: Kept,
) -> Sifted:
    """Which pairs pass; those not `considered` are neither kept nor dropped.

    Args:
        lengths: words and pieces of each side, both [N, 2], as the tokenizer counts them.
        duplicate: for each pair whether it stood somewhere before.
        near_duplicate: for each pair whether one that is nearly like it stood somewhere before.
        aligned: [N] words of both sides that are linked; nan of a pair that nothing has aligned.
    """
    both: list[tuple[str, Sequence[str]]] = [*zip(languages, texts, strict=True)]
    steps = _text_steps(filters, both, *lengths)
    if filters.min_aligned_fraction and aligned is not None:
        steps.append(lambda some: {"too few words are aligned": aligned[some] < filters.min_aligned_fraction})
    if filters.language_threshold:
        for number, (code, lines) in enumerate(both):
            steps.append(
                lambda some, number=number, code=code, lines=lines: {
                    f"side {number + 1} is {OTHER_LANGUAGE}": in_other_language(
                        _take(lines, some), code, filters.language_threshold, filters.language_model
                    )
                }
            )
    # Last: a pair that another rule drops is never the first copy.
    steps += [lambda some: {"near-duplicate pair": near_duplicate[some]},
              lambda some: {"duplicate pair": duplicate[some]}]  # fmt: skip
    return _sift(steps, considered)


def _text_steps(
    filters: Filters, sides: Sequence[tuple[str, Sequence[str]]], words: NDArray[np.integer], pieces: NDArray
) -> list[Step]:
    """The rules on texts alone, of lines [N, 1] or of the two sides of pairs [N, 2]."""
    counted = np.stack([_words(filters, *side, words[:, n]) for n, side in enumerate(sides)], axis=1)
    steps: list[Step] = [lambda some: _length_reasons(filters, counted[some], pieces[some])]
    if filters.max_length_ratio and len(sides) == 2:
        ratio = counted.max(axis=1) > filters.max_length_ratio * counted.min(axis=1)
        steps.append(lambda some: {"lengths too different": ratio[some]})
    if filters.drop_identical and len(sides) == 2:
        steps.append(lambda some: {"texts are identical": _equal([lines for _, lines in sides], some)})
    if names := [name.casefold() for name in filters.drop_lines_with]:
        steps.append(lambda some: {"holds what drop_lines_with names": _any_side(partial(_hold, names), sides, some)})
    if filters.min_script_fraction:
        wrong = partial(in_other_script, min_fraction=filters.min_script_fraction)
        steps.append(lambda some: {OTHER_SCRIPT: _any_side(wrong, sides, some)})
    return steps


def _any_side(judge: Callable[[list[str], str], Kept], sides: Sequence[tuple[str, Sequence[str]]], some: Index) -> Kept:
    return np.any([judge(_take(lines, some), language) for language, lines in sides], axis=0)


def _sift(steps: Sequence[Step], considered: Kept) -> Sifted:
    """Applies the steps in order, each to the remaining rows: the costly ones come last."""
    keep, dropped = considered.copy(), {}
    for step in steps:
        numbers = np.flatnonzero(keep)
        if not len(numbers):
            break
        for reason, mask in step(numbers).items():
            if len(gone := numbers[mask & keep[numbers]]):
                dropped[reason] = gone
                keep[gone] = False
    return Sifted(keep, dropped)


def _words(filters: Filters, language: str, lines: Sequence[str], words: NDArray[np.integer]) -> NDArray:
    """Words of each line: the tokenizer's, but not in a script without blanks, where these may be whole sentences."""
    asked = filters.min_words or filters.max_words or filters.max_length_ratio
    return count_words(lines) if asked and letters_a_word(language) > 1 else words


def _length_reasons(filters: Filters, words: NDArray, pieces: Index) -> dict[str, Kept]:
    """Of lines [N, 1] or pairs [N, 2]."""
    reasons = {
        "too short": words.min(axis=1) < filters.min_words,
        "too few pieces": pieces.min(axis=1) < filters.min_pieces,
    }
    if filters.max_words:
        reasons["too long"] = words.max(axis=1) > filters.max_words
    if filters.max_pieces:
        reasons["too many pieces"] = pieces.max(axis=1) > filters.max_pieces
    if filters.max_pair_pieces and pieces.shape[1] == 2:
        reasons["too many pieces together"] = pieces.sum(axis=1) > filters.max_pair_pieces
    return reasons


def _hold(markers: Sequence[str], lines: Sequence[str], _: str) -> Kept:
    return np.asarray([any(marker in text for marker in markers) for text in map(str.casefold, lines)], bool)


def _equal(texts: Sequence[Sequence[str]], some: Index) -> Kept:
    left, right = (_take(lines, some) for lines in texts)
    return np.asarray([_plain(a) == _plain(b) for a, b in zip(left, right, strict=True)], bool)


def _take(items: Sequence[Item], numbers: Index) -> list[Item]:
    chosen: list[int] = numbers.tolist()
    return [items[n] for n in chosen]


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()


def _beginning(document: Document) -> str:
    """As much of a document as its language is judged by."""
    text, lines = "", iter(document.paragraphs)
    while len(text) < READ_CHARACTERS and (line := next(lines, None)) is not None:
        text += f"{line} "
    return text


Reals = NDArray[np.float64]

# Where a line begins or ends, by RE2.
BULLET = r"^\s*[\x{2022}\x{2023}\x{25aa}\x{25cf}\x{25e6}\x{25a0}\x{25b6}\x{2043}*\-\x{2013}]"
ELLIPSIS = r"(\.\.\.|\x{2026})\s*$"
HASH, DOTS = "#", r"\.\.\.|\x{2026}"


def low_quality(rules: QualityConfig, language: str, documents: Sequence[Document]) -> dict[str, Kept]:
    """For each rule that is on, the documents [D] that it leaves out."""
    if rules == QualityConfig():
        return {}
    return dict(_judge(rules, _Measures(documents, round(letters_a_word(language)))))


class _Measures:
    """Measures that the rules compare, each a number a document [D]."""

    def __init__(self, documents: Sequence[Document], letters_a_word: int) -> None:
        self.lines = [line for document in documents for line in document.paragraphs]
        self.document_lines = np.asarray([len(document.paragraphs) for document in documents], np.int64)
        self.line_document = np.repeat(np.arange(len(documents)), self.document_lines)
        self.text: Characters = read_characters(self.lines)
        self.letters_a_word = letters_a_word
        self.unit_document = np.repeat(self.line_document, self.text.line_units)
        counted = is_word(self.text)
        spaced = counted & (self.text.kinds[starts(self.text.unit_length)] < IDEOGRAPH)
        words = unit_words(self.text) * counted
        self.words = self.sum_units(words)
        self.alpha_words = self.sum_units(words * has_letter(self.text))
        self.spaced_words = self.sum_units(spaced)
        self.spaced_characters = self.sum_units(spaced * self._without_punctuation())
        self.characters = self.sum_lines(self.text.line_length)

    def sum_units(self, values: NDArray) -> Reals:
        return np.bincount(self.unit_document, values, len(self.document_lines)).astype(np.float64)

    def sum_lines(self, values: NDArray) -> Reals:
        return np.bincount(self.line_document, values, len(self.document_lines)).astype(np.float64)

    def characters_of(self, *kinds: int) -> Reals:
        of_kind = np.isin(self.text.kinds, kinds)
        return self.sum_units(np.add.reduceat(of_kind, starts(self.text.unit_length), dtype=np.int64))

    def lines_with(self, pattern: str) -> Reals:
        """How many times a pattern is found in the lines of a document."""
        text = pa.array(self.lines, pa.string())
        return self.sum_lines(pc.count_substring_regex(text, pattern).to_numpy(zero_copy_only=False))  # type: ignore[attr-defined]

    def duplicate_lines(self) -> Kept:
        """The lines that stood before in their document; case and blanks at their ends count."""
        codes = pa.array(self.lines, pa.string()).dictionary_encode().indices.to_numpy().astype(np.int64)
        keys = self.line_document * (len(self.lines) + 1) + codes
        first = np.unique(keys, return_index=True)[1]
        duplicate = np.ones(len(keys), bool)
        duplicate[first] = False
        return duplicate

    def _without_punctuation(self) -> Index:
        return np.add.reduceat(self.text.kinds != PUNCTUATION, starts(self.text.unit_length), dtype=np.int64)


def _judge(rules: QualityConfig, found: _Measures) -> Iterator[tuple[str, Kept]]:
    words, characters = np.maximum(found.words, 1e-9), np.maximum(found.characters, 1)
    if rules.min_doc_words:
        yield "document has too few words", found.words < rules.min_doc_words
    if rules.max_doc_words:
        yield "document has too many words", found.words > rules.max_doc_words
    length = found.spaced_characters / np.maximum(found.spaced_words, 1)
    mostly_spaced = found.spaced_words > found.words / 2
    if rules.min_avg_word_length:
        yield "words are too short on average", mostly_spaced & (length < rules.min_avg_word_length)
    if rules.max_avg_word_length:
        yield "words are too long on average", mostly_spaced & (length > rules.max_avg_word_length)
    if rules.min_alpha_words_ratio:
        yield "too few words with a letter", found.alpha_words / words < rules.min_alpha_words_ratio
    if rules.max_symbol_word_ratio:
        symbols = np.maximum(found.lines_with(HASH), found.lines_with(DOTS))
        yield "too many hash signs or ellipses", symbols / words > rules.max_symbol_word_ratio
    if rules.max_digit_fraction:
        yield "too many digits", found.characters_of(NUMBER) / characters > rules.max_digit_fraction
    if rules.max_punctuation_fraction:
        marks = found.characters_of(PUNCTUATION, SYMBOL) / characters
        yield "too much punctuation", marks > rules.max_punctuation_fraction
    if rules.max_bullet_lines_ratio:
        bullets = found.lines_with(BULLET) / found.document_lines
        yield "too many lines begin with a bullet", bullets > rules.max_bullet_lines_ratio
    if rules.max_ellipsis_lines_ratio:
        ellipses = found.lines_with(ELLIPSIS) / found.document_lines
        yield "too many lines end in an ellipsis", ellipses > rules.max_ellipsis_lines_ratio
    if rules.dup_line_frac or rules.dup_line_char_frac:
        duplicate = found.duplicate_lines()
        if rules.dup_line_frac:
            yield "too many duplicate lines", found.sum_lines(duplicate) / found.document_lines > rules.dup_line_frac
        if rules.dup_line_char_frac:
            share = found.sum_lines(duplicate * found.text.line_length) / characters
            yield "too many characters in duplicate lines", share > rules.dup_line_char_frac
    if rules.top_n_grams or rules.dup_n_grams:
        yield from _judge_n_grams(dict(rules.top_n_grams), dict(rules.dup_n_grams), found)


def _judge_n_grams(
    top: Mapping[int, float], duplicate: Mapping[int, float], found: _Measures
) -> Iterator[tuple[str, Kept]]:
    """Of words; in a language without blanks, of the letters of as many average words."""
    counted = is_word(found.text)
    lengths, document = found.text.unit_length[counted], found.unit_document[counted]
    hashes = unit_hashes(found.text)[counted]
    characters = np.maximum(np.bincount(document, lengths, len(found.document_lines)), 1)
    factor = found.letters_a_word
    asked = [{n * factor: fraction for n, fraction in some.items()} for some in (top, duplicate)]
    for n, share in top_n_grams(hashes, lengths, document, sorted(asked[0]), len(characters)):
        yield "one n-gram of words is too frequent", share / characters > asked[0][n]
    for n, share in duplicate_n_grams(hashes, lengths, document, sorted(asked[1]), len(characters)):
        yield "too many duplicate n-grams of words", share / characters > asked[1][n]


# N-grams that stand twice in a document: found by hashes of words, for all documents at once, with numpy.

Hashes = NDArray[np.uint64]

_CHARACTER, _WORD, _DOCUMENT = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93))


def unit_hashes(text: Characters) -> Hashes:
    """A hash of each unit [U]: the same characters, the same hash."""
    if not len(text.unit_length):
        return np.zeros(0, np.uint64)
    number = np.arange(len(text.points)) - np.repeat(starts(text.unit_length), text.unit_length)
    powers = np.cumprod(np.full(int(number.max()) + 1, _CHARACTER))
    mixed = (text.points.astype(np.uint64) + np.uint64(1)) * powers[number]
    return mix(np.add.reduceat(mixed, starts(text.unit_length)))


def top_n_grams(
    hashes: Hashes, lengths: Index, document: Index, sizes: Sequence[int], documents: int
) -> Iterator[tuple[int, Index]]:
    """For each n of `sizes`: characters of a document's most frequent n-gram, each time it stands there, [D].

    Of n-grams that are as frequent the longest; 0 where none stands there twice.

    Args:
        hashes: of the words of all documents [W], with their `lengths` in characters and their `document`, ascending.
    """
    for n, places, group in _standing_twice(hashes, document, sizes):
        counts = np.bincount(group)[group]
        characters = _spans(lengths, n)[places]
        order = np.lexsort((characters, counts, document[places]))
        largest = np.zeros(documents, np.int64)
        largest[document[places][order]] = (counts * characters)[order]  # the last of a document counts
        yield n, largest


def duplicate_n_grams(
    hashes: Hashes, lengths: Index, document: Index, sizes: Sequence[int], documents: int
) -> Iterator[tuple[int, Index]]:
    """For each n of `sizes`: characters of the words of a document that are in an n-gram that stood before in it, [D].

    Args:
        As of top_n_grams.
    """
    for n, places, group in _standing_twice(hashes, document, sizes):
        again = np.ones(len(places), bool)
        again[np.unique(group, return_index=True)[1]] = False
        change = np.zeros(len(hashes) + 1, np.int64)
        change[places[again]] += 1
        np.subtract.at(change, places[again] + n, 1)
        covered = np.cumsum(change[:-1]) > 0
        yield n, np.bincount(document, covered * lengths, documents).astype(np.int64)


def _standing_twice(hashes: Hashes, document: Index, sizes: Sequence[int]) -> Iterator[tuple[int, Index, Index]]:
    """For each n: the places, ascending, where an n-gram begins that its document has twice, and the n-gram's number.

    What stands twice does so without its last word too: each n looks only where a shorter one was found.
    """
    places = np.arange(len(hashes))
    rolled, rolled_to = mix(document.astype(np.uint64) * _DOCUMENT), 0
    for n in sizes:
        places = places[places <= len(hashes) - n]
        places = places[document[places] == document[places + n - 1]]
        rolled = rolled.copy()
        for k in range(rolled_to, n):
            rolled[places] = rolled[places] * _WORD + hashes[places + k]
        rolled_to = n
        _, group, counts = np.unique(rolled[places], return_inverse=True, return_counts=True)
        twice = counts[group] > 1
        places, group = places[twice], group[twice]
        yield n, places, group


def _spans(lengths: Index, n: int) -> Index:
    """Characters of the n words from each word on [W]; of fewer at the end."""
    total = np.concatenate(([0], np.cumsum(lengths)))
    return total[np.minimum(np.arange(len(lengths)) + n, len(lengths))] - total[:-1]
