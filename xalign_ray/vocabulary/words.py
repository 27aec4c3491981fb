"""Words of a line by one rule for every tokenizer, which pieces each of them has, and the blanks of data files.

The rule is Unicode's UAX 29 with three changes: punctuation always stands apart, also an apostrophe or a point between
letters, because dictionaries have neither (`l'eau` is `l`, `'`, `eau`); Japanese kana stand one by one, as Chinese
characters do; and so do letters of Thai, Lao, Burmese, Khmer and their like, which have no blanks between words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import langcodes
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import regex
from langcodes.data_dicts import LIKELY_SUBTAGS
from numpy.typing import NDArray

from xalign_ray.shards.rows import Index, starts

# Lines as arrays of characters with their kinds, and the words of them, in scripts with and without blanks.

BLANK, LETTER, NUMBER, PUNCTUATION, SYMBOL, OTHER, IDEOGRAPH, SYLLABLE = range(8)
_CATEGORIES = {"L": LETTER, "M": LETTER, "N": NUMBER, "P": PUNCTUATION, "S": SYMBOL, "Z": BLANK, "C": OTHER}

# Letters of scripts that put no blanks between words. Chinese characters and kana: 1.67 of them are a word of the
# Chinese treebank PUD. Thai, Lao, Burmese, Khmer and Tibetan: a rough number, a Thai dictionary's words have 5.3.
CHARACTERS_A_WORD = {IDEOGRAPH: 1.7, SYLLABLE: 4.5}
_UNSPACED = {
    IDEOGRAPH: ((0x3005, 0x3007), (0x3041, 0x30FA), (0x30FC, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF),
                (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x20000, 0x323AF)),
    SYLLABLE: ((0x0E00, 0x0EFF), (0x0F00, 0x0FFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0xA9E0, 0xA9FF),
               (0xAA60, 0xAA7F)),
}  # fmt: skip


@lru_cache(maxsize=1)
def _categories() -> str:
    """The first letter of the Unicode category of each code point."""
    return "".join(unicodedata.category(chr(point))[0] for point in range(0x110000))


def is_letter() -> NDArray[np.bool_]:
    """Whether each code point is a letter (Unicode category L)."""
    return np.frombuffer(_categories().encode(), np.uint8) == ord("L")


@lru_cache(maxsize=1)
def _kinds() -> NDArray[np.uint8]:
    """The kind of each code point."""
    kinds = np.asarray([_CATEGORIES[category] for category in _categories()], np.uint8)
    for kind, ranges in _UNSPACED.items():
        for first, last in ranges:
            block = kinds[first : last + 1]
            block[block == LETTER] = kind
    kinds[[9, 10, 11, 12, 13, 0x85]] = BLANK
    return kinds


@dataclass(frozen=True)
class Characters:
    """The characters of lines that are no blanks, and their units.

    A unit is a run of such characters between blanks, or one letter of a script without blanks.

    Attributes:
        points: [C] code points, and `kinds` [C] of each.
        line_length: [N] characters of each line, without blanks.
        unit_length: [U] characters of each unit, and `line_units` [N] how many a line has.
    """

    points: NDArray[np.uint32]
    kinds: NDArray[np.uint8]
    line_length: Index
    unit_length: Index
    line_units: Index


def code_points(lines: Sequence[str]) -> tuple[NDArray[np.uint32], Index]:
    """The code points of all lines, concatenated [C], and their number in each line [N]."""
    points = np.frombuffer("".join(lines).encode("utf-32-le", "surrogatepass"), "<u4")
    return points, np.fromiter(map(len, lines), np.int64, len(lines))


def read_characters(lines: Sequence[str], punctuation: bool = True) -> Characters:
    """Of some lines; without punctuation it is as good as blanks."""
    points, lengths = code_points(lines)
    kinds = _kinds()[points]
    full = (kinds != BLANK) & ((kinds != PUNCTUATION) | punctuation)
    alone = kinds >= IDEOGRAPH
    begins = full.copy()
    begins[1:] &= ~full[:-1] | alone[1:] | alone[:-1]
    begins[starts(lengths)[lengths > 0]] = full[starts(lengths)[lengths > 0]]
    line = np.repeat(np.arange(len(lines)), lengths)
    at = np.flatnonzero(begins[full])
    return Characters(
        points=points[full],
        kinds=kinds[full],
        line_length=np.bincount(line[full], minlength=len(lines)),
        unit_length=np.diff(at, append=int(full.sum())),
        line_units=np.bincount(line[begins], minlength=len(lines)),
    )


def is_word(text: Characters) -> NDArray[np.bool_]:
    """The units [U] that hold more than punctuation and invisible characters."""
    return _any(text, (text.kinds != PUNCTUATION) & (text.kinds != OTHER))


def has_letter(text: Characters) -> NDArray[np.bool_]:
    """The units [U] in which there is a letter."""
    return _any(text, (text.kinds == LETTER) | (text.kinds >= IDEOGRAPH))


def unit_words(text: Characters) -> NDArray[np.float64]:
    """How many words each unit [U] is: one, or of a script without blanks the part of one that a letter makes."""
    weights = np.ones(SYLLABLE + 1)
    for kind, characters in CHARACTERS_A_WORD.items():
        weights[kind] = 1 / characters
    return weights[text.kinds[starts(text.unit_length)]]


def count_words(lines: Sequence[str]) -> NDArray[np.float64]:
    """Words of each line [N], whatever its script: not the tokenizer's, and punctuation alone is none."""
    text = read_characters(lines)
    line = np.repeat(np.arange(len(lines)), text.line_units)
    return np.bincount(line, unit_words(text) * is_word(text), len(lines)).astype(np.float64)


def _any(text: Characters, true: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return np.logical_or.reduceat(true, starts(text.unit_length)) if len(text.unit_length) else np.zeros(0, bool)


# The script that a language is usually written in, and the share of a text's letters that are of it.

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
_OF_SEVERAL = {
    "KATAKANA-HIRAGANA",
    "IDEOGRAPHIC",
    "MICRO",
    "FEMININE",
    "MASCULINE",
    "MODIFIER",
    "",
}  # letters of several scripts
_RIGHT = 1 << 32
_NO_BLANKS: dict[str, int] = dict.fromkeys(("Hans", "Hant", "Jpan"), IDEOGRAPH)
_NO_BLANKS |= dict.fromkeys(("Thai", "Laoo", "Khmr", "Mymr", "Tibt"), SYLLABLE)


def script_of(language: str) -> str:
    """The four letters of ISO 15924 of the script that a language is usually written in; empty if unknown."""
    tag = langcodes.get(language)
    if tag.script or tag.language in LIKELY_SUBTAGS:
        return tag.maximize().script or ""
    return _NOT_LISTED.get(tag.language or "", "")  # langcodes would take it for English


def scripts_in(text: str) -> set[str]:
    """The scripts of a text's letters, as their Unicode names begin: LATIN, CJK, HIRAGANA."""
    names = {unicodedata.name(letter, "").partition(" ")[0] for letter in text if letter.isalpha()}
    return names - _OF_SEVERAL


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
    letters = pa.array(map(chr, points.tolist()), pa.string())
    # Letters shared by scripts, such as the long vowel of Japanese and the tatweel of Arabic, decide nothing.
    patterns = (pattern, r"\p{Common}|\p{Inherited}")
    matches, shared = (pc.match_substring_regex(letters, one_of) for one_of in patterns)  # type: ignore[attr-defined]
    values[points] += _RIGHT * matches.to_numpy(zero_copy_only=False)
    values[points[shared.to_numpy(zero_copy_only=False)]] = 0
    return values


def letters_a_word(language: str) -> float:
    """How many letters make a word, of a language that is written without blanks; 1 of one that is not."""
    kind = _NO_BLANKS.get(script_of(language))
    return CHARACTERS_A_WORD[kind] if kind else 1.0


_SIGN, _BLANK, _ATTACHED, _LETTER, _ALONE, _PICTURE, _FLAG = range(7)
_KINDS = {  # later ones win
    _PICTURE: r"\p{ExtPict}",
    _FLAG: r"\p{RI}",
    _ALONE: r"[\p{L}\p{Ideographic}]",  # letters of scripts without blanks: those that are no _LETTER
    _LETTER: r"(?!\p{P})[\p{WB=ALetter}\p{WB=Hebrew_Letter}\p{WB=Numeric}]",
    _ATTACHED: r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]",  # marks, joiners, soft hyphens
    _BLANK: r"[\s\u200b]",  # U+200B stands between words of Khmer and Thai
}
_ASSIGNED = ((0, 0xD800), (0xE000, 0x33480), (0xE0000, 0xE1000))  # all beyond are signs
FIRST_UNSPACED = "\u0e01"  # the first letter of a script without blanks: Thai
_JOINER = 0x200D
# Characters that a normalizer removes or joins to the one before: marks, joiners and other invisible ones, jamo.
_MARKS = regex.compile(r"[\p{M}\p{Cf}\u1160-\u11ff\ud7b0-\ud7fb]*")


@dataclass(frozen=True)
class LineWords:
    """The words of lines by the rule, as flat arrays.

    Attributes:
        first: [C] for each place in a line, its end included, the number of the word that covers it, or else of the
            next one. Each line has one more word, empty, at its end.
        last: [C] the number of the word that covers the character before the place, or else of the one before.
        line_begin: [N + 1] where each line's places begin.
        begin: [W] the place of each word's first character, and `end` [W] the place behind its last.
        lettered: [W] whether a word is more than punctuation.
    """

    first: Index
    last: Index
    line_begin: Index
    begin: Index
    end: Index
    lettered: NDArray[np.bool_]

    def trim(self, first: Index, last: Index) -> tuple[Index, Index, NDArray[np.bool_]]:
        """Runs of words without the punctuation at their ends; a run of punctuation alone stays.

        Args:
            first: [R] the first word of each run, and `last` [R] its last.

        Returns:
            The same of the trimmed runs, and whether they are more than punctuation.
        """
        numbers = np.arange(len(self.lettered))
        before = np.maximum.accumulate(np.where(self.lettered, numbers, -1))
        after = np.minimum.accumulate(np.where(self.lettered, numbers, len(numbers))[::-1])[::-1]
        has_letters = after[first] <= last
        return np.where(has_letters, after[first], first), np.where(has_letters, before[last], last), has_letters


@lru_cache(maxsize=1)
def _kind_of_points() -> NDArray[np.uint8]:
    """The kind of each code point."""
    kinds = np.zeros(0x110000, np.uint8)
    for first, last in _ASSIGNED:
        characters = "".join(map(chr, range(first, last)))
        for kind, pattern in _KINDS.items():
            for run in regex.finditer(f"(?:{pattern})+", characters):
                kinds[first + run.start() : first + run.end()] = kind
    return kinds


def find_line_words(lines: Sequence[str]) -> LineWords:
    """The words of lines in NFC."""
    points = np.frombuffer("".join(f"{line}\n" for line in lines).encode("utf-32-le", "surrogatepass"), "<u4")
    line_begin = np.zeros(len(lines) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1, out=line_begin[1:])
    kind = _kind_of_points()[points]
    blank = kind == _BLANK
    attached = kind == _ATTACHED
    attached[1:] &= ~blank[:-1]
    attached[:1] = False
    places = np.arange(len(points))
    base = np.maximum.accumulate(np.where(attached, 0, places))  # the character that each attached one belongs to
    before = np.full(len(points), _BLANK, np.uint8)  # kind of the character before, or of the one it is attached to
    before[1:] = kind[base[:-1]]
    begins = ~(blank | attached | ((kind == _LETTER) & (before == _LETTER)))
    begins &= ~_continues_sign(points, kind, before)
    ends_line = np.zeros(len(points), bool)
    ends_line[line_begin[1:] - 1] = True
    begin = np.flatnonzero(begins | ends_line)
    borders = np.flatnonzero(begins | blank)
    borders = np.append(borders, len(points))
    end = borders[np.searchsorted(borders, begin) + 1]
    end[ends_line[begin]] = begin[ends_line[begin]] + 1
    begun = np.zeros(len(points) + 1, np.int64)
    np.cumsum(begins | ends_line, out=begun[1:])
    return LineWords(
        first=np.cumsum(np.bincount(end, minlength=len(points) + 1))[: len(points)],
        last=begun[: len(points)] - 1,
        line_begin=line_begin,
        begin=begin,
        end=end,
        lettered=np.isin(kind[begin], (_LETTER, _ALONE)),
    )


def _continues_sign(
    points: NDArray[np.uint32], kind: NDArray[np.uint8], before: NDArray[np.uint8]
) -> NDArray[np.bool_]:
    """The second letters of flags, and pictures behind a picture and a joiner."""
    continues = np.zeros(len(points), bool)
    continues[1:] = (kind[1:] == _PICTURE) & (before[1:] == _PICTURE) & (points[:-1] == _JOINER)
    flag = kind == _FLAG
    if flag.any():
        places = np.arange(len(points))
        begin_of_run = np.maximum.accumulate(np.where(flag, 0, places + 1))
        continues |= flag & ((places - begin_of_run) % 2 == 1)
    return continues


def end_of_marks(text: str, end: int, following: int) -> int:
    """The end of a piece with the marks behind it: offsets end before those that a normalizer strips.

    Args:
        end: by the tokenizer's offsets.
        following: where what comes next begins.
    """
    marks = _MARKS.match(text, end, max(end, following))
    return marks.end() if marks else end


def begin_of_marks(text: str, begin: int, before: int) -> int:
    """The beginning of a piece with the marks before it that no piece has, such as U+200F before an Arabic word.

    Args:
        begin: by the tokenizer's offsets.
        before: where what comes before ends.
    """
    while begin > before and _MARKS.fullmatch(text, begin - 1, begin):
        begin -= 1
    return begin


# Blanks between words and columns of data files: U+0020 and TAB, as the programs that write the files have them.
#
# Python's own `str.split()` also splits at U+0085, U+00A0, U+2009, U+202F, U+3000 and others. fast_align, eflomal and
# the Moses scripts take these for parts of words, so that links would point to the word before the right one.

BLANKS = " \t"
WORD = re.compile(rf"[^{BLANKS}]+")


def split_words(line: str) -> list[str]:
    """The words of a line, as the links of a word alignment count them: `"a\\u00a0! b"` has two."""
    return WORD.findall(line)
