"""Leaves out lines and pairs that the recipe's filters do not let pass, and counts them by reason."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence

import langcodes
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xalign_ray.config.schema import FiltersConfig as Filters
from xalign_ray.text.rows import Index

Kept = NDArray[np.bool_]

# What RE2 calls the scripts that languages are written in; a script that is not here is not checked.
_NAMES = {
    "Arab": "Arabic", "Armn": "Armenian", "Beng": "Bengali", "Cyrl": "Cyrillic", "Deva": "Devanagari",
    "Ethi": "Ethiopic", "Geor": "Georgian", "Grek": "Greek", "Gujr": "Gujarati", "Guru": "Gurmukhi", "Hans": "Han",
    "Hant": "Han", "Hebr": "Hebrew", "Khmr": "Khmer", "Knda": "Kannada", "Laoo": "Lao", "Latn": "Latin",
    "Mlym": "Malayalam", "Mong": "Mongolian", "Mymr": "Myanmar", "Orya": "Oriya", "Sinh": "Sinhala", "Taml": "Tamil",
    "Telu": "Telugu", "Thai": "Thai", "Tibt": "Tibetan",
}  # fmt: skip
_LETTERS = {script: rf"\p{{{name}}}" for script, name in _NAMES.items()} | {
    "Jpan": r"[\p{Hiragana}\p{Katakana}\p{Han}]",
    "Kore": r"[\p{Hangul}\p{Han}]",
}


def keep_lines(
    filters: Filters, language: str, lines: Sequence[str], words: NDArray[np.integer], duplicate: Kept | None,
    counts: Counter[str],
) -> Kept:  # fmt: skip
    """Which lines pass; the others are counted under `dropped: reason`, each under the first reason that holds.

    Args:
        words: of each line; a line without any passes, since it makes no example anyway.
        duplicate: for each line whether it stood somewhere before.
    """
    dropped = _length_reasons(filters, words[:, None])
    dropped["duplicate line"] = np.zeros(len(lines), bool) if duplicate is None else duplicate
    if filters.min_script_fraction:
        dropped["not in the language's script"] = _wrong_script(lines, language, filters.min_script_fraction)
    return _pass(dropped, words > 0, counts) | (words == 0)


def keep_pairs(
    filters: Filters, languages: Sequence[str], texts: Sequence[Sequence[str]], words: Index, duplicate: Kept | None,
    considered: Kept, counts: Counter[str],
) -> Kept:  # fmt: skip
    """Which pairs pass; as keep_lines. `words` is [N, 2]; pairs not `considered` are neither kept nor counted."""
    dropped = _length_reasons(filters, words)
    if filters.max_length_ratio:
        dropped["lengths too different"] = words.max(axis=1) > filters.max_length_ratio * words.min(axis=1)
    if filters.drop_identical:
        equal = [_plain(left) == _plain(right) for left, right in zip(*texts, strict=True)]
        dropped["texts are identical"] = np.asarray(equal, bool)
    dropped["duplicate pair"] = np.zeros(len(words), bool) if duplicate is None else duplicate
    if filters.min_script_fraction:
        wrong = [_wrong_script(s, code, filters.min_script_fraction) for s, code in zip(texts, languages, strict=True)]
        dropped["not in the language's script"] = wrong[0] | wrong[1]
    return _pass(dropped, considered, counts)


def usual_script(language: str) -> str | None:
    """A regular expression of a letter in the script that a language is usually written in, or None if unknown."""
    return _LETTERS.get(langcodes.get(language).maximize().script or "")


def _length_reasons(filters: Filters, words: NDArray[np.integer]) -> dict[str, Kept]:
    reasons = {"too short": words.min(axis=1) < filters.min_words}
    if filters.max_words:
        reasons["too long"] = words.max(axis=1) > filters.max_words
    return reasons


def _pass(dropped: dict[str, Kept], considered: Kept, counts: Counter[str]) -> Kept:
    keep = considered.copy()
    for reason, mask in dropped.items():
        if count := int((keep & mask).sum()):
            counts[f"dropped: {reason}"] = count
        keep &= ~mask
    return keep


def _wrong_script(lines: Sequence[str], language: str, min_fraction: float) -> Kept:
    """Lines whose letters are less than a share of the language's script; a line without letters is not wrong."""
    pattern = usual_script(language)
    if pattern is None:
        return np.zeros(len(lines), bool)
    text = pa.array(lines, pa.string())
    right, letters = (
        pc.count_substring_regex(text, p).to_numpy(zero_copy_only=False)  # type: ignore[attr-defined]
        for p in (pattern, r"\pL")
    )
    return right < min_fraction * letters


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()
