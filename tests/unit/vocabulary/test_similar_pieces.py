"""FOCUS' weights: sparsemax against a search for the nearest point, and vectors of pieces that are used alike."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from xalign_ray.vocabulary.exchange import combine_similar, piece_vectors, sparsemax


def project_slowly(scores: list[float]) -> list[float]:
    """The nearest point of the simplex, by halving the threshold's interval."""
    low, high = min(scores) - 1, max(scores)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(one - middle, 0) for one in scores) > 1 else (low, middle)
    return [max(one - low, 0) for one in scores]


def test_sparsemax_is_the_nearest_point_of_the_simplex() -> None:
    scores = np.random.default_rng(0).normal(size=(40, 9)) * np.geomspace(0.01, 3, 40)[:, None]
    found = sparsemax(scores)
    assert found == pytest.approx(np.asarray([project_slowly(row) for row in scores.tolist()]), abs=1e-9)
    assert found.sum(axis=1) == pytest.approx(1)
    assert (found == 0).any()
    assert sparsemax(np.asarray([[0.0, 2.0]])).tolist() == [[0, 1]]


def tokenizer(words: str) -> Tokenizer:
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words.split())}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def test_new_piece_starts_as_the_shared_one_that_is_used_alike() -> None:
    new = tokenizer("? cat Katze the sleeps eats runs fast drives car road on")
    animals = [f"the {who} {what}" for who in ("cat", "Katze") for what in ("sleeps", "eats")]
    cars = ["car drives fast on road", "car runs fast on road"]
    shared = {number: 100 + number for number in range(12) if number != 2}
    lines = [*animals, *cars] * 5
    found = combine_similar(new, lines, shared, [2])
    assert max(found[2], key=found[2].__getitem__) == 101
    assert sum(found[2].values()) == pytest.approx(1)
    assert combine_similar(new, lines, {}, [2]) == combine_similar(new, [], shared, [2]) == {}
    numbers, vectors = piece_vectors(new, lines)
    assert 0 not in numbers, "the text has no unknown piece"
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1)
