"""The changes that make a derived language of English, composed in any order, and its code (ALIGN-MLM, section 4).

`inv` turns a sentence round, `syn` gives it the word order of another language, `trans` writes it in another script.
The first two move words, and `trans` writes each word for itself: where it stands among them makes no difference.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence

from xalign_ray.config.explain import suggest
from xalign_ray.errors import ConfigError
from xalign_ray.text.transliteration import TYPOGRAPHIC
from xalign_ray.text.word_order import Sentence

INVERSION, SYNTAX, TRANSLITERATION = "inv", "syn", "trans"
CHANGES = (INVERSION, SYNTAX, TRANSLITERATION)
DEFAULT = (INVERSION, TRANSLITERATION)
FINAL_MARKS = frozenset(".!?")

Order = Callable[[Sentence], list[int] | None]  # for each new place the old one; None if the sentence cannot be used

_CLITIC = re.compile(r"(?i)(n['\u2019]t|['\u2019](?:s|re|ve|ll|d|m))$")
_KEPT_POINT = frozenset(["mr", "mrs", "ms", "dr", "jr", "sr", "st", "vs"])  # "Mr." is one word, as it is there


def check_changes(changes: Sequence[str]) -> None:
    """Raises ConfigError if a change is unknown, stands there twice, or there is none."""
    for change in changes:
        if change not in CHANGES:
            raise ConfigError(f"--changes {','.join(changes)}: unknown change '{change}'.{suggest(change, CHANGES)} "
                              f"Known: {', '.join(CHANGES)}.")  # fmt: skip
    if not changes or len(set(changes)) < len(changes):
        raise ConfigError(f"--changes {','.join(changes)}: name each of {', '.join(CHANGES)} at most once, and one.")


def derived_language(changes: Sequence[str]) -> str:
    """The code of the language: `en-x-trans`, `en-x-inv`, `en-x-syn-inv`.

    As in the paper's tables, a language is in the other script where nothing else is said; one that is not ends in
    `latn`.
    """
    moves = [change for change in changes if change != TRANSLITERATION]
    script = [] if TRANSLITERATION in changes else ["latn"]
    return "-".join(["en-x", *(moves or [TRANSLITERATION]), *script])


def compose(orders: Sequence[Order]) -> Order:
    """One change of order after the other: each is of the sentence that the one before has made."""

    def composed(sentence: Sentence) -> list[int] | None:
        places = list(range(len(sentence.words)))
        for order in orders:
            moved = order(sentence)
            if moved is None:
                return None
            sentence, places = sentence.in_order(moved), [places[place] for place in moved]
        return places

    return composed


def invert(sentence: Sentence) -> list[int]:
    """The order of T_inv."""
    return inverted_order(sentence.words)


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
