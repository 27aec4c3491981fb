"""Rules by which answers to questions are compared: MLQA's official script, and SQuAD 1.1's."""

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
_ASCII_PUNCTUATION = dict.fromkeys(map(ord, string.punctuation))
_TOKEN = {"zh": re.compile(r"[\u4e00-\u9fa5]|[^\s\u4e00-\u9fa5]+")}  # else what white space parts
Compare = Callable[[Sequence[str], Sequence[str]], float]
Tokens = Callable[[str, str], list[str]]  # of an answer and its language


def mlqa_tokens(text: str, language: str) -> list[str]:
    """The tokens of an answer as MLQA's official script makes them (Lewis et al. 2020), in its order.

    Lower case; no punctuation (Unicode's categories P, and ASCII's); no articles; then tokens between white space, in
    Chinese each ideograph by itself. A language that MLQA lacks has no articles and white space.
    """
    bare = text.lower().translate(_punctuation())
    articles = _ARTICLES.get(language.partition("-")[0])
    return [match[0] for match in _tokens(articles.sub(" ", bare) if articles else bare, language)]


def squad_tokens(text: str, language: str) -> list[str]:  # noqa: ARG001
    """The tokens of an answer as SQuAD 1.1's official script makes them, which XTREME calls for XQuAD and TyDiQA.

    In every language the same: lower case, no ASCII punctuation, no English articles, tokens between white space.
    """
    return _ARTICLES["en"].sub(" ", text.lower().translate(_ASCII_PUNCTUATION)).split()


def exact_match(said: Sequence[str], right: Sequence[str]) -> float:
    """1 if the tokens are the same in the same order. Nothing equals an answer that is articles only."""
    return float(list(said) == list(right))


def token_f1(said: Sequence[str], right: Sequence[str]) -> float:
    """Harmonic mean of precision and recall over tokens, each as often as it occurs; 0 if none is shared."""
    shared = (Counter(said) & Counter(right)).total()
    return 2 * shared / (len(said) + len(right)) if shared else 0.0


def best_match(said: str, right: Sequence[str], language: str, compare: Compare, tokens: Tokens) -> float:
    """The comparison (`exact_match`, `token_f1`) with the right answer that fits best, in the context's language."""
    found = tokens(said, language)
    return max(compare(found, tokens(answer, language)) for answer in right)


def random_answer(key: str, context: str, right: str, language: str) -> str:
    """As many tokens as the right answer has, from a place in the context that depends on the question's key alone.

    The level of a model that knows how long answers are and not where: by hash, so that it is a fact of the file.
    """
    tokens = list(_tokens(context, language))
    length = min(len(tokens), len(list(_tokens(right, language))))
    first = random.Random(f"answer/{key}").randrange(len(tokens) - length + 1)
    return context[tokens[first].start() : tokens[first + length - 1].end()] if length else ""


def _tokens(text: str, language: str) -> Iterator[re.Match[str]]:
    return re.finditer(_TOKEN.get(language.partition("-")[0], r"\S+"), text)


@cache
def _punctuation() -> dict[int, None]:
    marks = {code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)).startswith("P")}
    return dict.fromkeys(marks | set(map(ord, string.punctuation)))
