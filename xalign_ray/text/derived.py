"""Makes a language out of English: words in reverse order, in another script (ALIGN-MLM's Trans+Inv).

Inversion first, then transliteration. The writing is one-to-one and shares no character with the original, so that a
tokenizer trained on both texts gives them no common piece: all that the two languages share is structure.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from xalign_ray.text.transliteration import TYPOGRAPHIC

DERIVED_LANGUAGE = "en-x-inv"
FINAL_MARKS = frozenset(".!?")

_CLITIC = re.compile(r"(?i)(n['\u2019]t|['\u2019](?:s|re|ve|ll|d|m))$")
_KEPT_POINT = frozenset(["mr", "mrs", "ms", "dr", "jr", "sr", "st", "vs"])  # "Mr." is one word, as it is there


def inverted_order(words: Sequence[str]) -> list[int]:
    """Where each word of the inverted text comes from, as indices into `words`.

    A sentence ends at `.`, `!` or `?`; its words are reversed, the final mark stays last (ALIGN-MLM, appendix on the
    transformations). Words after the last mark are a sentence without one.
    """
    order: list[int] = []
    start = 0
    for end, word in enumerate(words):
        if word in FINAL_MARKS:
            order += [*range(end - 1, start - 1, -1), end]
            start = end + 1
    return order + list(range(len(words) - 1, start - 1, -1))


def split_words(line: str) -> list[str]:
    """Words between white space, with the marks before and after them as words of their own.

    As in Universal Dependencies, whose tagged words the same language is made of, "do|n't" and "dog|'s" are two words,
    and the point of initials, of "U.S." and of titles stays. Other marks inside a word stay too ("well-known").
    """
    words: list[str] = []
    for token in line.split():
        if _CLITIC.fullmatch(token):
            words.append(token)
            continue
        core = token.strip(string.punctuation + TYPOGRAPHIC)
        if not core:
            words += token
            continue
        before, after = token.split(core, 1)
        if after.startswith(".") and _keeps_point(core):
            core, after = f"{core}.", after[1:]
        words += [*before, *filter(None, _CLITIC.split(core)), *after]
    return words


def split_sentences(words: Sequence[str]) -> list[list[str]]:
    """Sentences, each up to and with its final mark, as `inverted_order` sees them."""
    sentences: list[list[str]] = [[]]
    for word in words:
        sentences[-1].append(word)
        if word in FINAL_MARKS:
            sentences.append([])
    return [sentence for sentence in sentences if sentence]


def _keeps_point(core: str) -> bool:
    return "." in core or (len(core) == 1 and core.isupper()) or core.lower() in _KEPT_POINT
