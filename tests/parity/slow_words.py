"""The reference for cutting text: the tokenizer's own encoding of each line, word by word, in plain Python."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from xalign_ray.text.look_up import look_up_form

LONGEST = 8


@dataclass(frozen=True)
class Word:
    """A word of a line: its pieces, its form for look-ups, and the number of its word between blanks."""

    pieces: tuple[int, ...]
    form: str
    blank_word: int


def tokenize_slowly(backend: Tokenizer, lines: Sequence[str], longest: int = LONGEST) -> list[list[Word]]:
    """The words of each line; one of more than `longest` pieces is cut into its pieces, which have no form."""
    backend.encode_special_tokens = True
    result = []
    for raw in lines:
        line = unicodedata.normalize("NFC", raw)
        encoding = backend.encode(line, add_special_tokens=False)
        words: list[Word] = []
        ids, offsets, numbers = encoding.ids, encoding.offsets, encoding.word_ids
        begin, count = 0, len(ids)
        while begin < count:
            end = begin + 1
            while end < count and numbers[end] == numbers[begin]:
                end += 1
            if end - begin > longest:
                words += [Word((ids[i],), "", _blank_word(line, *offsets[i])) for i in range(begin, end)]
            else:
                following = offsets[end][0] if end < count else len(line)
                stop = offsets[end - 1][1]
                is_han = unicodedata.name(line[stop - 1 : stop] or "a", "").startswith("CJK")
                while (
                    not is_han
                    and stop < following
                    and (line[stop] in "\u200c\u200d" or unicodedata.category(line[stop])[0] == "M")
                ):
                    stop += 1  # marks that the normalizer strips
                span = offsets[begin][0], stop
                form = look_up_form(line[slice(*span)])
                words.append(Word(tuple(ids[begin:end]), form, _blank_word(line, *span)))
            begin = end
        result.append(words)
    return result


def _blank_word(line: str, begin: int, end: int) -> int:
    """How many words between blanks end before the first character of the span that is no blank."""
    while begin < end and line[begin] in " \t":
        begin += 1
    before = line[:begin].replace("\t", " ")
    ended = len(list(filter(None, before.split(" ")))) - (bool(before) and before[-1] != " ")
    return min(ended, max(len(list(filter(None, line.replace("\t", " ").split(" ")))) - 1, 0))
