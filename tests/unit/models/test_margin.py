"""Margin mining against a slow reference, for any size of the blocks; the threshold against trying all of them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from xalign_ray.models import nearest
from xalign_ray.models.nearest import (
    NEGATIVES_AMONG,
    Mined,
    best_threshold,
    mine_pairs,
    mined_negatives,
    nearest_both_ways,
    search_both_ways,
)


def unit(count: int, width: int = 6, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def slow_pairs(first: np.ndarray, second: np.ndarray, k: int) -> list[tuple[int, int]]:
    """Sentence by sentence, with Python's sort."""
    cosines = first.astype(np.float64) @ second.astype(np.float64).T
    near = [sorted(range(len(second)), key=lambda j, i=i: (-cosines[i, j], j))[:k] for i in range(len(first))]
    near_back = [sorted(range(len(first)), key=lambda i, j=j: (-cosines[i, j], i))[:k] for j in range(len(second))]
    mean = [sum(cosines[i, j] for j in near[i]) / len(near[i]) for i in range(len(first))]
    mean_back = [sum(cosines[i, j] for i in near_back[j]) / len(near_back[j]) for j in range(len(second))]

    def score(i: int, j: int) -> float:
        return cosines[i, j] / ((mean[i] + mean_back[j]) / 2)

    candidates = [(i, max(near[i], key=lambda j, i=i: score(i, j))) for i in range(len(first))]
    candidates += [(max(near_back[j], key=lambda i, j=j: score(i, j)), j) for j in range(len(second))]
    pairs: list[tuple[int, int]] = []
    for i, j in sorted(candidates, key=lambda pair: -score(*pair)):
        if all(i != one and j != other for one, other in pairs):
            pairs.append((i, j))
    return pairs


@pytest.mark.parametrize(("rows", "columns"), [(2048, 8192), (7, 5), (1, 3), (40, 1)])
@pytest.mark.parametrize(("sizes", "k"), [((40, 31), 4), ((3, 50), 4), ((20, 20), 1)])
def test_mined_pairs_are_those_of_the_slow_reference(
    monkeypatch: pytest.MonkeyPatch, rows: int, columns: int, sizes: tuple[int, int], k: int
) -> None:
    monkeypatch.setattr(nearest, "ROWS", rows)
    monkeypatch.setattr(nearest, "COLUMNS", columns)
    first, second = unit(sizes[0], seed=1), unit(sizes[1], seed=2)
    second[:10] += 2 * first[:1]  # a hub, which margin punishes
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    mined = mine_pairs(*nearest_both_ways(first, second, k))
    assert [(one.first, one.second) for one in mined] == slow_pairs(first, second, k)
    assert [one.score for one in mined] == sorted((one.score for one in mined), reverse=True)


def test_equal_vectors_keep_the_lower_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "COLUMNS", 2)
    same = np.tile(unit(1), (5, 1))
    one, other = nearest_both_ways(same[:3], same, 2)
    assert one.places.tolist() == [[0, 1]] * 3
    assert other.places.tolist() == [[0, 1]] * 5


def test_faiss_finds_nearly_all_neighbours_and_the_same_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(4)
    base = random.normal(size=(300, 48))[random.integers(300, size=10_000)] + random.normal(size=(10_000, 48))
    first, second = (base[::step] + 0.5 * random.normal(size=base.shape) for step in (1, -1))
    sides = [(side / np.linalg.norm(side, axis=1, keepdims=True)).astype(np.float32) for side in (first, second)]
    exact, searched = nearest_both_ways(*sides), search_both_ways(*sides, exact_up_to=9_999)
    shares = [np.mean([*map(np.isin, one.places, other.places)]) for one, other in zip(exact, searched, strict=True)]
    assert min(shares) > 0.98
    assert all(
        np.allclose(one.cosines[:, 0], other.cosines[:, 0], atol=0.01)
        for one, other in zip(exact, searched, strict=True)
    )
    pairs = [{(pair.first, pair.second) for pair in mine_pairs(*found)} for found in (exact, searched)]
    assert len(pairs[0] & pairs[1]) > 0.99 * len(pairs[0])
    at_limit = search_both_ways(*sides, exact_up_to=10_000)
    monkeypatch.setattr(nearest, "find_spec", lambda _: None)
    for found in (at_limit, search_both_ways(*sides, exact_up_to=9_999)):
        assert all(np.array_equal(one.cosines, other.cosines) for one, other in zip(exact, found, strict=True))


def test_a_side_without_vectors_gives_no_pair() -> None:
    assert mine_pairs(*nearest_both_ways(unit(0), unit(3))) == []


def slow_threshold(mined: list[Mined], gold: set[tuple[int, int]]) -> float:
    """The highest F1 of all scores as thresholds."""
    firsts, seconds = ({pair[side] for pair in gold} for side in (0, 1))
    judged = [one for one in mined if one.first in firsts or one.second in seconds]
    best = 0.0
    for least in {one.score for one in judged}:
        kept = [one for one in judged if one.score >= least]
        right = sum((one.first, one.second) in gold for one in kept)
        if right:
            precision, recall = right / len(kept), right / len(gold)
            best = max(best, 2 * precision * recall / (precision + recall))
    return best


@pytest.mark.parametrize("seed", range(5))
def test_the_threshold_has_the_highest_f1(seed: int) -> None:
    draw = random.Random(seed)
    mined = sorted((Mined(draw.random(), i, i if draw.random() < 0.6 else i + 1) for i in range(60)), reverse=True)
    gold = {(i, i) for i in range(0, 60, 2)}
    found = best_threshold(mined, gold)
    assert found is not None
    assert found.f1 == pytest.approx(slow_threshold(mined, gold))
    kept = [one for one in mined if one.score >= found.score]
    right = sum((one.first, one.second) in gold for one in kept)
    assert found.recall == right / len(gold)


def test_no_gold_pair_among_the_mined_gives_no_threshold() -> None:
    assert best_threshold([Mined(1.0, 0, 1)], {(0, 0)}) is None


def slow_negatives(first: np.ndarray, second: np.ndarray, pairs: list[tuple[int, int]], k: int) -> list[list[int]]:
    """Sentence by sentence: the pair of the hardest text of the other side, for the first and the second of a pair."""
    cosines = first.astype(np.float64) @ second.astype(np.float64).T
    near = [np.argsort(-row, kind="stable")[:k] for row in cosines]
    near_back = [np.argsort(-row, kind="stable")[:k] for row in cosines.T]
    mean = [cosines[i, near[i]].mean() for i in range(len(first))]
    mean_back = [cosines[near_back[j], j].mean() for j in range(len(second))]
    found: list[list[int]] = [[], []]
    for i, j in pairs:
        own = cosines[i, j] / ((mean[i] + mean_back[j]) / 2)
        for side, others in enumerate((near[i], near_back[j])):
            best, best_score = -1, -np.inf
            for other in others.tolist():
                a, b = (i, other) if side == 0 else (other, j)
                score = cosines[a, b] / ((mean[a] + mean_back[b]) / 2)
                if (a, b) not in pairs and best_score < score < own:
                    best, best_score = other, score
            numbers = [number for number, pair in enumerate(pairs) if pair[1 - side] == best]
            found[side].append(numbers[0] if numbers else -1)
    return found


def test_hard_negatives_are_the_best_margins_below_the_pairs_own() -> None:
    draw = random.Random(2)
    first = unit(40, seed=1)
    second = first + unit(40, seed=2) * 0.9
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    pairs = [(i, i) for i in range(40)] + [(draw.randrange(40), draw.randrange(40)) for _ in range(25)]
    of_first, of_second = (np.array(side) for side in zip(*pairs, strict=True))
    found = mined_negatives(first, second.astype(np.float32), of_first, of_second)
    expected = slow_negatives(first, second.astype(np.float32), pairs, NEGATIVES_AMONG)
    assert [one.tolist() for one in found] == expected
    assert any(-1 in side for side in expected), "some pair has no harder sentence"
    assert len({*expected[0]}) > 15
    for side, numbers in enumerate(found):
        for (i, j), number in zip(pairs, numbers.tolist(), strict=True):
            other = pairs[number][1 - side]
            assert number < 0 or ((i, other) if side == 0 else (other, j)) not in pairs
