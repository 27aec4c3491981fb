"""Leaves out documents, lines and pairs that the recipe's filters do not let pass, each for the first reason."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.sources import FiltersConfig as Filters
from xalign_ray.data.language_id import READ_CHARACTERS, in_other_language
from xalign_ray.data.quality import low_quality
from xalign_ray.data.sources.records import Document
from xalign_ray.text.characters import count_words
from xalign_ray.text.rows import Index
from xalign_ray.text.scripts import in_other_script, letters_a_word

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


def keep_documents(
    filters: Filters, language: str, documents: Sequence[Document], near_duplicate: Kept | None
) -> Sifted:
    """Which documents, of one language, pass as a whole; this needs no tokenizer.

    Args:
        near_duplicate: for each document whether one that is nearly like it stood somewhere before.
    """
    steps: list[Step] = []
    if near_duplicate is not None:
        steps.append(lambda some: {"near-duplicate document": near_duplicate[some]})
    steps.append(lambda some: low_quality(filters.quality, language, _take(documents, some)))
    if filters.language_threshold:
        steps.append(
            lambda some: {
                OTHER_LANGUAGE: in_other_language(
                    [_beginning(one) for one in _take(documents, some)], language, filters.language_threshold
                )
            }
        )
    return _sift(steps, np.ones(len(documents), bool))


def keep_lines(
    filters: Filters,
    language: str,
    lines: Sequence[str],
    words: NDArray[np.integer],
    pieces: Index,
    duplicate: Kept | None,
) -> Sifted:
    """Which lines pass.

    Args:
        words: of each line, as the tokenizer counts them; a line without any passes, since it makes no example anyway.
        pieces: of each line.
        duplicate: for each line whether it stood somewhere before.
    """
    counted = _words(filters, language, lines, words)[:, None]
    steps: list[Step] = [lambda some: _length_reasons(filters, counted[some], pieces[some, None])]
    if duplicate is not None:
        steps.append(lambda some: {"duplicate line": duplicate[some]})
    if filters.drop_lines_with:
        steps.append(lambda some: {"holds what drop_lines_with names": _hold(filters.drop_lines_with, lines, some)})
    if filters.min_script_fraction:
        steps.append(lambda some: {OTHER_SCRIPT: _wrong_script(filters, language, lines, some)})
    sifted = _sift(steps, words > 0)
    return Sifted(sifted.keep | (words == 0), sifted.dropped)


def keep_pairs(
    filters: Filters,
    languages: Sequence[str],
    texts: Sequence[Sequence[str]],
    lengths: tuple[Index, Index],
    duplicate: Kept | None,
    near_duplicate: Kept | None,
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
    words, pieces = lengths
    both: list[tuple[str, Sequence[str]]] = [*zip(languages, texts, strict=True)]
    counted = np.stack([_words(filters, *one, words[:, n]) for n, one in enumerate(both)], axis=1)
    steps: list[Step] = [lambda some: _length_reasons(filters, counted[some], pieces[some])]
    if filters.max_length_ratio:
        ratio = counted.max(axis=1) > filters.max_length_ratio * counted.min(axis=1)
        steps.append(lambda some: {"lengths too different": ratio[some]})
    if filters.drop_identical:
        steps.append(lambda some: {"texts are identical": _equal(texts, some)})
    if duplicate is not None:
        steps.append(lambda some: {"duplicate pair": duplicate[some]})
    if near_duplicate is not None:
        steps.append(lambda some: {"near-duplicate pair": near_duplicate[some]})
    if filters.drop_lines_with:
        names = filters.drop_lines_with
        steps.append(
            lambda some: {
                "holds what drop_lines_with names": _hold(names, texts[0], some) | _hold(names, texts[1], some)
            }
        )
    if filters.min_script_fraction:
        steps.append(lambda some: {OTHER_SCRIPT: np.logical_or(*(_wrong_script(filters, *one, some) for one in both))})
    if filters.min_aligned_fraction and aligned is not None:
        steps.append(lambda some: {"too few words are aligned": aligned[some] < filters.min_aligned_fraction})
    if filters.language_threshold:
        for number, (code, lines) in enumerate(both):
            steps.append(
                lambda some, number=number, code=code, lines=lines: {
                    f"side {number + 1} is {OTHER_LANGUAGE}": in_other_language(
                        _take(lines, some), code, filters.language_threshold
                    )
                }
            )
    return _sift(steps, considered)


def _sift(steps: Sequence[Step], considered: Kept) -> Sifted:
    """Takes one step after the other, each on what is left: the costly ones come last."""
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


def _hold(markers: Sequence[str], lines: Sequence[str], some: Index) -> Kept:
    folded = [marker.casefold() for marker in markers]
    texts = [line.casefold() for line in _take(lines, some)]
    return np.asarray([any(marker in text for marker in folded) for text in texts], bool)


def _wrong_script(filters: Filters, language: str, lines: Sequence[str], some: Index) -> Kept:
    return in_other_script(_take(lines, some), language, filters.min_script_fraction)


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
