"""Bilingual dictionaries as one lexicon: forms that are looked up, phrases found in lines, held-out concepts, draws.

Formulas, and how the papers were read: docs/explanation/methods.md, DICT-MLM.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xalign_ray.shards.counter_random import PICK_LANGUAGE, PICK_SYNONYM, Bits, integers, random_bits
from xalign_ray.shards.rows import Index, Ints, starts
from xalign_ray.vocabulary.words import FIRST_UNSPACED, find_line_words

# Forms under which words are looked up in a dictionary: lower case and spelling variants folded, by language.

# Languages whose Latin I is the capital of a dotless i: Unicode's SpecialCasing, and others that are written the same.
DOTLESS_I = frozenset({"tr", "az", "crh", "gag", "kk-Latn", "tt-Latn"})
_CAPITAL_I = str.maketrans({"I": "\u0131", "\u0130": "i"})
# Letters of a language that its texts also write as another, which the language does not have: Romanian s and t with a
# cedilla for a comma below; Arabic yeh, alef maksura, kaf and heh for the Persian letters; eth for the Vietnamese d.
_ARABIC = {"\u064a": "\u06cc", "\u0649": "\u06cc", "\u0643": "\u06a9"}
_ONE_LETTER = {
    "ro": str.maketrans("\u015f\u0163", "\u0219\u021b"),
    "fa": str.maketrans(_ARABIC),
    "ckb": str.maketrans(_ARABIC | {"\u06be": "\u0647"}),
    "ur": str.maketrans(_ARABIC | {"\u0647": "\u06c1"}),
    "vi": str.maketrans("\u00f0", "\u0111"),
}
# Ligatures and digraphs, presentation forms of Hebrew and Arabic letters, full-width and half-width forms.
_PRINTED = (
    range(0x0132, 0x0134), range(0x013F, 0x0141), range(0x01C4, 0x01CD), range(0x01F1, 0x01F4), range(0x0587, 0x0588),
    range(0xFB00, 0xFE00), range(0xFE70, 0xFEFD), range(0xFF01, 0xFFEF),
)  # fmt: skip
# Hebrew points, Arabic vowel marks and the letter stretcher: most texts leave them out.
_POINTS = (
    *range(0x0591, 0x05BE), 0x05BF, 0x05C1, 0x05C2, 0x05C4, 0x05C5, 0x05C7, 0x0640, *range(0x064B, 0x0653), 0x0670,
)  # fmt: skip
# Soft hyphen, zero-width blank and joiner of words, marks of direction. U+200C and U+200D are part of words.
_INVISIBLE = (
    0x00AD, 0x061C, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), 0x2060, *range(0x2066, 0x206A), 0xFEFF,
)  # fmt: skip
_FOLDED = {
    **{point: unicodedata.normalize("NFKC", chr(point)) for points in _PRINTED for point in points},
    **dict.fromkeys((*_POINTS, *_INVISIBLE), ""),
    **dict.fromkeys((0x00B4, 0x02BB, 0x02BC, 0x05F3, 0x2018, 0x2019), "'"),  # ways to write an apostrophe
    **dict.fromkeys((0x05BE, 0x2010, 0x2011), "-"),  # hyphens
    0x05F4: '"',  # in Hebrew's abbreviations
    0x0149: "'n",
}
# Punctuation at the end of a dictionary's word that is no part of it; not hyphens and apostrophes (-ing, 's), not signs
# (#, %, &, @, *, /), and a point only where the word has no other (U.S.).
_OF_SCRIPTS = (  # stops, commas and marks: Greek, Armenian, Hebrew, Syriac, Tibetan, Burmese, Ethiopic, Khmer, ...
    0x0387, 0x00B7, 0x0589, *range(0x055B, 0x0560), 0x05C3, *range(0x0700, 0x070B), 0x07F8, 0x07F9,
    *range(0x0F0D, 0x0F13), 0x104A, 0x104B, *range(0x1361, 0x1369), *range(0x17D4, 0x17D7), *range(0x1801, 0x1806),
    0x1C7E, 0x1C7F, 0xA4FE, 0xA4FF,
)  # fmt: skip
_ENDS = frozenset(map(chr, _OF_SCRIPTS)) | frozenset(
    '()[]{}<>,;:!?"\u00a1\u00bf\u00ab\u00bb\u2039\u203a\u201c\u201d\u201e\u2026\u060c\u061b\u061f\u06d4\u0964\u0965'
    "\u037e\u3001\u3002\u3008\u3009\u300a\u300b\u300c\u300d\u300e\u300f\u3010\u3011\u3014\u3015\uff01\uff02\uff08\uff09\uff0c"
    "\uff1a\uff1b\uff1f\uff3b\uff3d\uff5b\uff5d\uff61\uff62\uff63\uff64"
)

_QUOTES = frozenset(
    (("'", "'"), ("`", "`"), ("`", "'"), ("\u2018", "\u2019"), ("\u201a", "\u2018"), ("\u201a", "\u2019"))
)


_DOT = re.compile("([ij\u012f])\u0307")  # that Lithuanian keeps below an accent, and Python's lower case of \u0130
_STRESS = re.compile("([\u0400-\u052f])[\u0300\u0301]")  # NFC has made letters of those that are: ѝ, ѓ, ќ


def look_up_form(word: str, language: str = "") -> str:
    """The form under which a word stands in the dictionary: NFC, lower case, no surrounding blanks.

    Presentation forms, digraphs and full-width characters become plain letters, and apostrophes are alike. Vowel marks
    of Hebrew and Arabic, stress marks of Cyrillic and invisible characters are left out. The text itself keeps them:
    only words of a dictionary are written so.

    Args:
        language: of the word; in tr, az, crh and gag the lower case of I is dotless, and in ro, fa, ckb, ur and vi
            letters that stand for another are that one.
    """
    text, code = unicodedata.normalize("NFC", word), language.partition("-")[0]
    if code in DOTLESS_I or language in DOTLESS_I:
        text = text.translate(_CAPITAL_I)
    return _fold(text.lower()).lower().translate(_ONE_LETTER.get(code, {}))


def label_form(word: str) -> str:
    """A word of a dictionary as a label and in alignment: trimmed as for a look-up, but in its case and letters."""
    return _fold(unicodedata.normalize("NFC", word))


def _fold(text: str) -> str:
    text = text.replace("`", "'")
    if not text.isascii():
        text = unicodedata.normalize("NFC", _DOT.sub(r"\1", text.translate(_FOLDED)))
        text = _STRESS.sub(r"\1", text)
    return text.strip()


def trim_punctuation(word: str) -> str:
    """A dictionary's word without the punctuation around it: `house,` is `house`; punctuation alone stays.

    Single quotes go where they are on both sides: one alone is an apostrophe.
    """
    if len(word) > 2 and (word[0], word[-1]) in _QUOTES:
        return trim_punctuation(word[1:-1])
    begin, end = 0, len(word)
    while begin < end and word[begin] in _ENDS:
        begin += 1
    while end > begin and (word[end - 1] in _ENDS or (word[end - 1] == "." and "." not in word[begin : end - 1])):
        end -= 1
    return word[begin:end] or word


Key = tuple[int, str]  # language id and word form
Translation = tuple[Key, Key]


@dataclass
class Translations:
    """Translations, each once, with the counts of dropped ones: the state while dictionaries are read.

    labels: how each word is written as a label: as dictionaries write it first, in lower case where any of them does.
    """

    trained: dict[Translation, None] = field(default_factory=dict)
    held_out: dict[Translation, None] = field(default_factory=dict)
    labels: dict[Key, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class DictionaryPairs:
    """Pairs of words as pieces: left, right [n, k] padded with -1; left_language, right_language [n]."""

    left: Ints
    right: Ints
    left_language: Ints
    right_language: Ints

    def __len__(self) -> int:
        return len(self.left)


def add_entries(
    translations: Translations,
    entries: Iterable[tuple[Key, Key]],
    pivot: int | None,
    held_out_fraction: float,
    held_out: bool,
) -> None:
    """Adds the lines of one dictionary.

    A concept is its word in the pivot language (English where the dictionary has it, else the left word): holding out
    by the hash of that word holds a concept out in all languages at once, whatever the recipe and the order of files.
    Identity pairs (names, numbers) are no cross-lingual labels: dropped and counted. So are duplicates, whichever
    way round: a pair that two dictionaries give does not weigh twice.

    Args:
        pivot: the pivot's language id, or None.
        held_out_fraction: share of concepts to hold out; ignored if `held_out`, when all lines are.
    """
    for left, right in entries:
        translations.counts["lines"] += 1
        if left[1] == right[1]:
            translations.counts["identical"] += 1
            continue
        concept = right if right[0] == pivot else left
        out = held_out or _hash_share(concept[1]) < held_out_fraction
        kept = translations.held_out if out else translations.trained
        if (left, right) in kept or (right, left) in kept:
            translations.counts["duplicates"] += 1
        else:
            kept[left, right] = None


def _hash_share(word: str) -> float:
    digest = hashlib.blake2b(f"concept {word}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def separate(translations: Translations) -> None:
    """Drops held-out pairs with a word that is also trained on: no scored word was ever pulled towards another."""
    seen = {key for translation in translations.trained for key in translation}
    leaked = [translation for translation in translations.held_out if translation[0] in seen or translation[1] in seen]
    translations.counts["held_out_dropped_seen_in_training"] += len(leaked)
    for translation in leaked:
        del translations.held_out[translation]


def build_lexicon(
    trained: Sequence[Translation], pieces_of: Callable[[Key], tuple[int, ...] | None]
) -> tuple[dict[Key, int], Lexicon]:
    """Every word of the trained links to its synonyms in other languages, both ways.

    Args:
        pieces_of: the pieces of a word, or None for one that cannot be a label (unknown or too many pieces).

    Returns:
        The entry number of each word that has a usable synonym, and the arrays.
    """
    synonyms: dict[Key, dict[int, dict[Key, None]]] = {}
    for left, right in trained:
        for source, target in ((left, right), (right, left)):
            if pieces_of(target) is not None:
                synonyms.setdefault(source, {}).setdefault(target[0], {})[target] = None
    entries = {key: number for number, key in enumerate(sorted(synonyms))}
    entry_groups, group_language, group_synonyms, lengths, pieces = [], [], [], [], []
    for key in entries:
        groups = synonyms[key]
        entry_groups.append(len(groups))
        for language in sorted(groups):
            group_language.append(language)
            group_synonyms.append(len(groups[language]))
            for target in sorted(groups[language]):
                numbers = pieces_of(target)
                assert numbers is not None
                lengths.append(len(numbers))
                pieces += numbers
    arrays = (entry_groups, group_language, group_synonyms, lengths, pieces)
    return entries, Lexicon(*(np.asarray(array, np.int32) for array in arrays))


def pair_arrays(
    translations: Sequence[Translation], pieces_of: Callable[[Key], tuple[int, ...] | None]
) -> DictionaryPairs:
    """The links whose two words have pieces, as padded arrays for the alignment loss."""
    usable = [
        (a[0], b[0], x, y)
        for a, b in translations
        if (x := pieces_of(a)) is not None and (y := pieces_of(b)) is not None
    ]
    widest = max((max(len(x), len(y)) for *_, x, y in usable), default=1)

    def pad(words: list[tuple[int, ...]]) -> Ints:
        padded = np.full((len(words), widest), -1, np.int32)
        for row, word in enumerate(words):
            padded[row, : len(word)] = word
        return padded

    return DictionaryPairs(
        left=pad([x for *_, x, _ in usable]),
        right=pad([y for *_, y in usable]),
        left_language=np.asarray([a for a, *_ in usable], np.int32),
        right_language=np.asarray([b for _, b, *_ in usable], np.int32),
    )


# Replaces words by translations: language first, uniformly, then a synonym of it, uniformly (DICT, section 2.2).


@dataclass(frozen=True)
class Lexicon:
    """Many-to-many dictionary as flat arrays: entries own groups (one a target language), groups own synonyms.

    entry_groups [E] groups of each entry; group_language [G] language id; group_synonyms [G] synonyms of each group;
    synonym_length [Y] pieces of each synonym; pieces [P] their piece ids.
    """

    entry_groups: Ints
    group_language: Ints
    group_synonyms: Ints
    synonym_length: Ints
    pieces: Ints

    @cached_property
    def first_group(self) -> Index:
        """[E] where the groups of each entry begin."""
        return starts(self.entry_groups)

    @cached_property
    def first_synonym(self) -> Index:
        """[G] where the synonyms of each group begin."""
        return starts(self.group_synonyms)

    @cached_property
    def first_piece(self) -> Index:
        """[Y] where the pieces of each synonym begin."""
        return starts(self.synonym_length)


def pick_synonyms(
    lexicon: Lexicon, entry: NDArray[np.integer], keys: Bits, word_number: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Draws a synonym for each entry, on its own.

    Args:
        entry: [W] dictionary entries, all of them real (no NO_ENTRY).
        keys: [W] keys of the words' rows; word_number: [W] numbers of the words within their rows.

    Returns:
        [W] synonym numbers and [W] their language ids.
    """
    group = lexicon.first_group[entry] + integers(
        random_bits(keys, PICK_LANGUAGE, word_number), lexicon.entry_groups[entry]
    )
    synonym = lexicon.first_synonym[group] + integers(
        random_bits(keys, PICK_SYNONYM, word_number), lexicon.group_synonyms[group]
    )
    return synonym, lexicon.group_language[group]


def within_room(growth: NDArray[np.integer], row: NDArray[np.integer], room: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which replacements fit: in word order, those up to which the growth of their row stays within its room.

    Shrinking replacements always fit, and do not make room for others: a conservative rule that needs no search.

    Args:
        growth: [R] pieces that each replacement adds (may be negative), rows consecutive.
        row: [R] the row of each; room: [N] free positions of each row.
    """
    positive = np.maximum(growth, 0).astype(np.int64)
    total = np.cumsum(positive)
    per_row = np.bincount(row, minlength=len(room)).astype(np.int64)
    before = np.concatenate(([0], total))[starts(per_row)]
    return (growth <= 0) | (total - before[row] <= room[row])


# Finds dictionary entries of several words in lines: the longest match, from left to right.

LONGEST_PHRASE = 16  # words; a longer entry is found only where a tokenizer makes one word of it
NO_PART = -1


def split_forms(forms: Sequence[str]) -> list[str]:
    """The words of each form, by vocabulary/words.py, with a line break between them."""
    split = list(forms)
    several = [number for number, form in enumerate(forms) if not form.isalpha() or max(form) >= FIRST_UNSPACED]
    words = find_line_words([forms[number] for number in several])
    bounds = np.searchsorted(words.begin, words.line_begin).tolist()
    for line, number in enumerate(several):
        mine = slice(bounds[line], bounds[line + 1] - 1)  # the last word of a line is its end
        if mine.stop - mine.start > 1:
            begin, end = (places[mine] - words.line_begin[line] for places in (words.begin, words.end))
            texts = (forms[number][first:last] for first, last in zip(begin.tolist(), end.tolist(), strict=True))
            split[number] = "\n".join(texts)
    return split


class Phrases:
    """Entries of several words, as a tree that is walked for all words of a batch at once.

    Letters of scripts without blanks are words of their own, see words.py. A tokenizer may join neighbouring words
    by a piece that they share. So each run of an entry's words is a part, and the tree has a branch for each part that
    may follow a beginning. Blanks between words do not count.

    Attributes:
        parts: the number of each (language id, words) that may be a word, or several that share a piece, of an entry.
        has_several_words: of each entry by number.
    """

    def __init__(self, entries: Mapping[tuple[int, str], int]) -> None:
        self.parts: dict[tuple[int, str], int] = {}
        self.has_several_words = np.zeros(max(entries.values(), default=-1) + 1, bool)
        nodes: dict[tuple[int, str], int] = {}
        branches: dict[tuple[int, int], int] = {}
        whole: dict[int, int] = {}
        for ((language, _), entry), form in zip(entries.items(), split_forms([f for _, f in entries]), strict=True):
            words = form.split("\n")
            self.has_several_words[entry] = len(words) > 1
            if not 2 <= len(words) <= LONGEST_PHRASE:
                continue
            path = [NO_PART]
            for end in range(1, len(words) + 1):
                node = nodes.setdefault((language, "\n".join(words[:end])), len(nodes))
                for begin, before in enumerate(path):
                    part = self.parts.setdefault((language, "\n".join(words[begin:end])), len(self.parts))
                    branches[before, part] = node
                path.append(node)
            whole.setdefault(path[-1], entry)
        self._entry = np.full(len(nodes), NO_PART, np.int64)
        self._entry[[*whole]] = [*whole.values()]
        table = np.asarray([(before, part, node) for (before, part), node in branches.items()], np.int64).reshape(-1, 3)
        keys = self._key(table[:, 0], table[:, 1])
        order = np.argsort(keys)
        self._branches, self._nodes = keys[order], table[order, 2]

    def find(self, parts: Ints, word_length: Ints, line_words: Ints, longest: int) -> tuple[Index, Index, Index]:
        """The entries of two words and more, none over another.

        Args:
            parts: [3, W] the number in `self.parts` of each word's form as the first word of an entry, inside one, and
                as its last; NO_PART where it has none. They differ where a word shares a piece with punctuation.
            word_length: [W] pieces of each word.
            line_words: [N] words of each line.
            longest: pieces of an entry.

        Returns:
            The first word of each [M], how many words it has, and its entry.
        """
        as_first, inside, as_last = parts
        pieces = np.concatenate(([0], np.cumsum(word_length, dtype=np.int64)))
        line_end = np.repeat(np.cumsum(line_words, dtype=np.int64), line_words)
        words, entry = np.ones(len(as_first), np.int64), np.full(len(as_first), NO_PART, np.int64)
        first = np.flatnonzero(as_first >= 0)
        first, node = self._walk(first, np.full(len(first), NO_PART, np.int64), as_first[first])
        count = 1
        while len(first):
            goes_on = first + count < line_end[first]
            first, node = first[goes_on], node[goes_on]
            begin, end = self._walk(first, node, as_last[first + count])
            first, node = self._walk(first, node, inside[first + count])
            count += 1
            fits = (self._entry[end] >= 0) & (pieces[begin + count] - pieces[begin] <= longest)
            words[begin[fits]], entry[begin[fits]] = count, self._entry[end[fits]]
        at = _without_overlap(np.flatnonzero(words > 1), words)
        return at, words[at], entry[at]

    def _walk(self, first: Index, node: Index, part: NDArray[np.integer]) -> tuple[Index, Index]:
        """Those words from which the tree goes on with a part, and to where."""
        keys = self._key(node, part)
        at = np.minimum(np.searchsorted(self._branches, keys), len(self._branches) - 1)
        goes_on = (part >= 0) & (self._branches[at] == keys)
        return first[goes_on], self._nodes[at[goes_on]]

    def _key(self, node: Index, part: NDArray[np.integer]) -> Index:
        return (node + 1) * len(self.parts) + part


def _without_overlap(at: Index, words: Index) -> Index:
    """The matches, in order, that begin behind the end of the match before."""
    firsts, end = [], 0
    for first, count in zip(at.tolist(), words[at].tolist(), strict=True):
        if first >= end:
            firsts.append(first)
            end = first + count
    return np.asarray(firsts, np.int64)
