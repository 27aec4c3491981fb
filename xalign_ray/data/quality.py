"""Rules for the quality of whole documents (Gopher's, as datatrove applies them), in any script, over many at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xalign_ray.config.sources import QualityConfig
from xalign_ray.data.sources.records import Document
from xalign_ray.text.characters import (
    IDEOGRAPH,
    NUMBER,
    PUNCTUATION,
    SYMBOL,
    Characters,
    has_letter,
    is_word,
    read_characters,
    unit_words,
)
from xalign_ray.text.n_grams import duplicate_n_grams, top_n_grams, unit_hashes
from xalign_ray.text.rows import Index, starts
from xalign_ray.text.scripts import letters_a_word

Kept = NDArray[np.bool_]
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
    """What the rules compare, each a number a document [D]."""

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
    """Of words; of a language without blanks, of as many letters as make so many words."""
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
