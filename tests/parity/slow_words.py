"""The reference for words: the tokenizer's own encoding of each line and the rule of words, in plain Python."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tokenizers import Tokenizer

from xalign_ray.vocabulary.dictionary import look_up_form
from xalign_ray.vocabulary.tokenizer import encode_text

LONGEST = 16
# Letters of scripts without blanks: Thai to Burmese, kana, Chinese characters, Tangut and others.
UNSPACED = (
    (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17DC), (0x1950, 0x19DF), (0x1A20, 0x1AAD), (0x3006, 0x3007),
    (0x3021, 0x3029), (0x3038, 0x303A), (0x3031, 0x3035), (0x3041, 0x309F), (0x30A1, 0x30FF),
    (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA9E0, 0xA9FF), (0xAA60, 0xAAC2), (0xAADB, 0xAADD),
    (0xF900, 0xFAFF), (0xFF66, 0xFF9D), (0x11700, 0x11746), (0x17000, 0x18DFF), (0x1AFF0, 0x1B2FB),
    (0x20000, 0x323AF),
)  # fmt: skip
PREPENDED = (*range(0x600, 0x606), 0x6DD, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD)  # Arabic and Kaithi number signs
BLANK, ATTACHED, UNSPACED_LETTER, LETTER, SIGN = range(5)


@dataclass(frozen=True)
class Word:
    """A word of a line: its pieces, its form for look-ups, and the number of its word between blanks."""

    pieces: tuple[int, ...]
    form: str
    blank_word: int
    parts: tuple[str, ...] = field(default=(), compare=False)  # the forms of all words by the rule that share pieces
    punctuation: tuple[int, int] = field(default=(0, 0), compare=False)  # parts left out: before, behind


def kind_of(character: str) -> int:
    point, category = ord(character), unicodedata.category(character)
    if (character.isspace() and point not in range(0x1C, 0x20)) or character == "\u200b":
        return BLANK
    if character in "\u200c\u200d\uff9e\uff9f" or category[0] == "M" or 0x1F3FB <= point <= 0x1F3FF:
        return ATTACHED
    if category == "Cf":
        return LETTER if point in PREPENDED else ATTACHED
    if category[0] == "L" or category == "Nl":
        return UNSPACED_LETTER if any(first <= point <= last for first, last in UNSPACED) else LETTER
    if category == "Nd" or 0x24B6 <= point <= 0x24E9 or 0x1F130 <= point <= 0x1F189:
        return LETTER
    return SIGN


def split_slowly(line: str) -> list[tuple[int, int, bool]]:
    """The words of a line: begin, end, and whether it is more than punctuation."""
    words: list[tuple[int, int, bool]] = []
    before = BLANK
    flags = 0
    for at, character in enumerate(line):
        kind = kind_of(character)
        is_flag = 0x1F1E6 <= ord(character) <= 0x1F1FF
        joined = line[at - 1 : at] == "\u200d" and ord(character) > 0x1F000 and before == SIGN and words
        if (kind == ATTACHED and before != BLANK) or joined or (is_flag and flags % 2) or kind == before == LETTER:
            begin, _, lettered = words.pop()
            words.append((begin, at + 1, lettered))
        elif kind != BLANK:
            words.append((at, at + 1, kind in (LETTER, UNSPACED_LETTER)))
        flags = flags + 1 if is_flag else flags if kind == ATTACHED and flags % 2 == 0 else 0
        if kind != ATTACHED:
            before = kind
        elif before == BLANK:
            before = SIGN
    return words


def tokenize_slowly(backend: Tokenizer, lines: Sequence[str], longest: int = LONGEST) -> list[list[Word]]:
    """The words of each line; one of more than `longest` pieces is cut into its pieces, which have no form."""
    added = backend.get_added_tokens_decoder()
    result = []
    for raw in lines:
        line = unicodedata.normalize("NFC", raw)
        spans = split_slowly(line)
        ((line_ids,), (line_offsets,)) = encode_text(backend, [line])
        groups: list[tuple[list[int], set[int]]] = []  # pieces, and the words that they touch
        before = 0
        offsets = []
        for number, (begin, end) in zip(line_ids, line_offsets, strict=True):
            if number in added and added[number].lstrip and begin < before < end:
                begin = before  # a normalizer's blank has the offset of the character before it
            before = end
            offsets.append((begin, end))
        for piece, (begin, end) in enumerate(offsets):
            touched = {n for n, (b, e, _) in enumerate(spans) if b < end and e > begin}
            if not touched and begin == end:
                touched = {n for n, (b, e, _) in enumerate(spans) if b <= begin < e}
            if not touched:
                touched = {next((n for n, (b, _, _) in enumerate(spans) if b >= begin), len(spans))}
            if groups and min(touched) <= max(groups[-1][1]):
                groups[-1][0].append(piece)
                groups[-1][1].update(touched)
            else:
                groups.append(([piece], touched))
        words = []
        for pieces, touched in groups:
            ids = tuple(line_ids[piece] for piece in pieces)
            if len(pieces) > longest:
                words += [
                    Word((number,), "", _blank_word(line, *offsets[piece]))
                    for number, piece in zip(ids, pieces, strict=True)
                ]
                continue
            whole = [spans[n] for n in range(min(touched), max(touched) + 1) if n < len(spans)]
            parts = tuple(look_up_form(line[begin:end]) for begin, end, _ in whole)
            before = behind = 0
            while any(lettered for *_, lettered in whole) and not whole[0][2]:
                before += 1
                del whole[0]
            while any(lettered for *_, lettered in whole) and not whole[-1][2]:
                behind += 1
                del whole[-1]
            span = (whole[0][0], whole[-1][1]) if whole else (len(line), len(line))
            form = look_up_form(line[slice(*span)])
            words.append(Word(ids, form, _blank_word(line, *span), parts, (before, behind)))
        result.append(words)
    return result


def _blank_word(line: str, begin: int, end: int) -> int:
    """How many words between blanks end before the first character of the span that is no blank."""
    while begin < end and line[begin] in " \t":
        begin += 1
    before = line[:begin].replace("\t", " ")
    ended = len(list(filter(None, before.split(" ")))) - (bool(before) and before[-1] != " ")
    return min(ended, max(len(list(filter(None, line.replace("\t", " ").split(" ")))) - 1, 0))


def split_entries(entries: Mapping[str, int]) -> dict[tuple[str, ...], int]:
    """The words of each entry that has several; of those with the same words the first."""
    phrases: dict[tuple[str, ...], int] = {}
    for form, entry in entries.items():
        split = tuple(form[begin:end] for begin, end, _ in split_slowly(form))
        if len(split) > 1:
            phrases.setdefault(split, entry)
    return phrases


def find_slowly(
    words: Sequence[Word], entries: Mapping[str, int], phrases: Mapping[tuple[str, ...], int], longest: int = LONGEST
) -> list[tuple[int, int, int]]:
    """The units of a line: words, pieces and entry of each; -1 where there is none.

    At each word the longest run of words that has the words of an entry, one behind the other, but for punctuation that
    shares a piece with the first or the last of them.
    """
    units: list[tuple[int, int, int]] = []
    at = 0
    while at < len(words):
        best = (1, len(words[at].pieces), entries.get(words[at].form, -1) if words[at].form else -1)
        for end in range(at + 2, len(words) + 1):
            run = words[at:end]
            if not all(word.form for word in run):
                break
            parts = [part for word in run for part in word.parts]
            whole = tuple(parts[run[0].punctuation[0] : len(parts) - run[-1].punctuation[1]])
            pieces = sum(len(word.pieces) for word in run)
            if pieces > longest:
                break
            if whole in phrases and len(whole) <= LONGEST:
                best = (end - at, pieces, phrases[whole])
        units.append(best)
        at += best[0]
    return units
