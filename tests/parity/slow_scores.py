"""Scores of answers, slow and obvious, by the rules of MLQA's official script and of SQuAD's.

Written from the rules, not from the package: characters one by one, precision and recall apart, no regular expression.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

ARTICLES = {
    "en": "a an the",
    "es": "un una unos unas el la los las",
    "de": "ein eine einen einem eines einer der die das den dem des",
    "vi": "c\u1ee7a l\u00e0 c\u00e1i chi\u1ebfc nh\u1eefng",
}


def accuracy(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Equal ones of all."""
    return len([1 for right, said in zip(gold, predicted, strict=True) if right == said]) / len(gold)


def normalise(text: str, language: str) -> str:
    """Lower case, no punctuation, no articles, single spaces; ideographs of Chinese between spaces."""
    kept = ""
    for sign in text.lower():
        if unicodedata.category(sign)[0] != "P" and sign not in string.punctuation:
            kept += sign
    if language == "ar":
        kept = " ".join(kept.split("\u0627\u0644"))
    elif language in ARTICLES:
        words = [" " if part in ARTICLES[language].split(" ") else part for part in _word_runs(kept)]
        kept = "".join(words)
    if language == "zh":
        kept = "".join(f" {sign} " if "\u4e00" <= sign <= "\u9fa5" else sign for sign in kept)
    return " ".join(kept.split())


def squad_normalise(text: str) -> str:
    """SQuAD 1.1's own, which XTREME uses for XQuAD in all languages: only ASCII punctuation, only English articles."""
    kept = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return " ".join("".join(" " if part in ("a", "an", "the") else part for part in _word_runs(kept)).split())


def answer_f1(said: str, right: str) -> float:
    """F1 of two normalised answers: each token of one takes one equal token of the other."""
    mine, left = said.split(), right.split()
    hits = 0
    for token in mine:
        if token in left:
            left.remove(token)
            hits += 1
    if hits == 0:
        return 0.0
    precision, recall = hits / len(mine), hits / len(right.split())
    return 2 * precision * recall / (precision + recall)


def answer_scores(
    said: Sequence[str], right: Sequence[Sequence[str]], normal: Callable[[str], str]
) -> tuple[float, float]:
    """Mean F1 and mean exact match, each question's best over its right answers."""
    f1 = [max(answer_f1(normal(one), normal(gold)) for gold in golds) for one, golds in zip(said, right, strict=True)]
    exact = [max(normal(one) == normal(gold) for gold in golds) for one, golds in zip(said, right, strict=True)]
    return sum(f1) / len(f1), sum(exact) / len(exact)


def _word_runs(text: str) -> Iterator[str]:
    """The text in runs of letters, digits and low lines, and of everything else."""
    for _, group in groupby(text, lambda sign: sign.isalnum() or sign == "_"):
        yield "".join(group)
