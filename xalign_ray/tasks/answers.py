"""How an answer is compared with the right ones: MLQA's normalisation by language, F1 of tokens, exact match."""

from __future__ import annotations

import random
import re
import string
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

_ARTICLES: Mapping[str, re.Pattern[str]] = {
    "en": re.compile(r"\b(?:a|an|the)\b"),
    "es": re.compile(r"\b(?:un|una|unos|unas|el|la|los|las)\b"),
    "de": re.compile(r"\b(?:ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b"),
    "vi": re.compile(r"\b(?:c\u1ee7a|l\u00e0|c\u00e1i|chi\u1ebfc|nh\u1eefng)\b"),
    "ar": re.compile("\u0627\u0644"),  # wherever it stands: the official script's pattern, and so the published scores
}
_BY_SPACE = re.compile(r"\S+")
_BY_CHARACTER: Mapping[str, re.Pattern[str]] = {"zh": re.compile(r"[\u4e00-\u9fa5]|[^\s\u4e00-\u9fa5]+")}
Compare = Callable[[Sequence[str], Sequence[str]], float]


def normalise(text: str, language: str) -> list[str]:
    """The tokens of an answer, as MLQA's official script makes them (Lewis et al. 2020), in its order.

    Lower case; no punctuation (Unicode's categories P, and ASCII's); no articles; then tokens between white space, in
    Chinese each ideograph by itself. A language that MLQA lacks has no articles and white space.
    """
    bare = text.lower().translate(_punctuation())
    articles = _ARTICLES.get(_base(language))
    return [match[0] for match in _tokens(articles.sub(" ", bare) if articles else bare, language)]


def exact_match(said: Sequence[str], right: Sequence[str]) -> float:
    """1 if the tokens are the same in the same order. Nothing equals an answer that is articles only."""
    return float(list(said) == list(right))


def token_f1(said: Sequence[str], right: Sequence[str]) -> float:
    """Harmonic mean of precision and recall over tokens, each as often as it occurs; 0 if none is shared."""
    shared = (Counter(said) & Counter(right)).total()
    return 2 * shared / (len(said) + len(right)) if shared else 0.0


def best_match(said: str, right: Sequence[str], language: str, compare: Compare) -> float:
    """The comparison with the right answer that fits best.

    Args:
        said: the answer that is scored.
        right: one or more.
        language: of the context, which answers are parts of.
        compare: `exact_match` or `token_f1`.
    """
    tokens = normalise(said, language)
    return max(compare(tokens, normalise(answer, language)) for answer in right)


def random_answer(key: str, context: str, right: str, language: str) -> str:
    """As many tokens as the right answer has, from a place in the context that depends on the question's key alone.

    The level of a model that knows how long answers are and not where: by hash, so that it is a fact of the file.
    """
    tokens = list(_tokens(context, language))
    length = min(len(tokens), len(list(_tokens(right, language))))
    if not length:
        return ""
    first = random.Random(f"answer/{key}").randrange(len(tokens) - length + 1)
    return context[tokens[first].start() : tokens[first + length - 1].end()]


def _tokens(text: str, language: str) -> Iterator[re.Match[str]]:
    return _BY_CHARACTER.get(_base(language), _BY_SPACE).finditer(text)


def _base(language: str) -> str:
    return language.partition("-")[0]


@cache
def _punctuation() -> dict[int, None]:
    marks = {code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)).startswith("P")}
    return dict.fromkeys(marks | set(map(ord, string.punctuation)))
