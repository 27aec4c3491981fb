"""The script that a language is usually written in, and the share of a text's letters that are of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import langcodes
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from langcodes.data_dicts import LIKELY_SUBTAGS
from numpy.typing import NDArray

from xalign_ray.text.characters import CHARACTERS_A_WORD, IDEOGRAPH, SYLLABLE, code_points, is_letter
from xalign_ray.text.rows import starts

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
_NOT_LISTED = {"azb": "Arab", "pnb": "Arab", "sh": "Latn"}  # of mBERT's languages those that CLDR has no script of
_RIGHT = 1 << 32
_UNSPACED: dict[str, int] = dict.fromkeys(("Hans", "Hant", "Jpan"), IDEOGRAPH)
_UNSPACED |= dict.fromkeys(("Thai", "Laoo", "Khmr", "Mymr", "Tibt"), SYLLABLE)


def script_of(language: str) -> str:
    """The four letters of ISO 15924 of the script that a language is usually written in; empty if unknown."""
    tag = langcodes.get(language)
    if tag.script or tag.language in LIKELY_SUBTAGS:
        return tag.maximize().script or ""
    return _NOT_LISTED.get(tag.language or "", "")  # langcodes would take it for English


def usual_script(language: str) -> str | None:
    """A regular expression of a letter in the script that a language is usually written in, or None if unknown."""
    return _LETTERS.get(script_of(language))


def in_other_script(lines: Sequence[str], language: str, min_fraction: float) -> NDArray[np.bool_]:
    """Lines whose letters are less than a share of the language's script; a line without letters is not one."""
    pattern = usual_script(language)
    if pattern is None:
        return np.zeros(len(lines), bool)
    points, lengths = code_points(lines)
    full = lengths > 0
    counts = np.zeros(len(lines), np.int64)
    if full.any():
        counts[full] = np.add.reduceat(_letters_of(pattern)[points], starts(lengths)[full])
    return counts // _RIGHT < min_fraction * (counts % _RIGHT)


@lru_cache(maxsize=8)
def _letters_of(pattern: str) -> NDArray[np.int64]:
    """Of each code point: 1 if it is a letter, and _RIGHT more if the pattern finds it; both are counted in one sum."""
    values = is_letter().astype(np.int64)
    points = np.flatnonzero(values)
    found = pc.match_substring_regex(pa.array(map(chr, points.tolist()), pa.string()), pattern)  # type: ignore[attr-defined]
    values[points] += _RIGHT * found.to_numpy(zero_copy_only=False)
    return values


def letters_a_word(language: str) -> float:
    """How many letters make a word, of a language that is written without blanks; 1 of one that is not."""
    kind = _UNSPACED.get(script_of(language))
    return CHARACTERS_A_WORD[kind] if kind else 1.0
