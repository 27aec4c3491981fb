"""N-grams that stand twice in a document, counted by hand and against plain Python."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from xalign_ray.clean.filters import duplicate_n_grams, top_n_grams, unit_hashes
from xalign_ray.vocabulary.words import read_characters


def arrays(documents: list[str]):
    text = read_characters(documents)
    return unit_hashes(text), text.unit_length, np.repeat(np.arange(len(documents)), text.line_units)


def found(function, documents: list[str], sizes: list[int]) -> dict[int, list[int]]:
    return {n: share.tolist() for n, share in function(*arrays(documents), sizes, len(documents))}


def test_n_grams_counted_by_hand() -> None:
    documents = ["a bb ccc a bb ccc", "", "a bb", "a bb d", "x x x x"]
    # twice "a bb" (3 characters) and "bb ccc" (5); three times "x x"
    assert found(top_n_grams, documents, [2, 3]) == {2: [10, 0, 0, 0, 6], 3: [12, 0, 0, 0, 6]}
    # from its fourth word on the first document stood before; of the last "x x" stood before from its second word on
    assert found(duplicate_n_grams, documents, [2, 3]) == {2: [6, 0, 0, 0, 3], 3: [6, 0, 0, 0, 3]}


def test_the_most_frequent_goes_before_the_longest() -> None:
    assert found(top_n_grams, ["a b a b a b longer words longer words"], [2]) == {2: [6]}


@pytest.mark.parametrize("n", [1, 2, 5, 10])
def test_n_grams_as_plain_python_finds_them(n: int) -> None:
    dice = np.random.default_rng(n)
    texts = [[chr(97 + word) * (1 + word % 3) for word in dice.integers(0, 4, size).tolist()] for size in (0, 3, 60, 9)]
    top, duplicate = [], []
    for words in texts:
        grams = [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]
        counts = Counter(grams)
        best = max(((count, len("".join(gram))) for gram, count in counts.items()), default=(0, 0))
        top.append(best[0] * best[1] if best[0] > 1 else 0)
        covered = {at + k for at, gram in enumerate(grams) if gram in grams[:at] for k in range(n)}
        duplicate.append(sum(len(words[at]) for at in covered))
    documents = [" ".join(words) for words in texts]
    assert found(top_n_grams, documents, [n]) == {n: top}
    assert found(duplicate_n_grams, documents, [n]) == {n: duplicate}
    assert found(duplicate_n_grams, documents, sorted({1, n}))[n] == duplicate, "whatever was asked for before"


def test_words_have_one_hash_each() -> None:
    words = [f"{a}{b}" for a in "abcdefgh" for b in "abcdefgh"] + ["a", "aaa", "\u4e00", "\0a"]
    hashes = unit_hashes(read_characters([" ".join(words)]))
    assert len(set(hashes.tolist())) == len(hashes)
    assert all(a != b for a, b in pairwise(sorted(hashes.tolist())))
