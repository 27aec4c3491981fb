"""Nearest neighbours by cosine and CSLS, against hand-worked cases and a slow reference."""

from __future__ import annotations

import numpy as np

from xalign_ray.models.nearest import nearest_cosine, nearest_csls, unit_rows


def slow_csls(queries: np.ndarray, candidates: np.ndarray, sources: np.ndarray, k: int) -> list[int]:
    """CSLS word for word as in Conneau et al. 2018, section 2.3, r_T included."""

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    best = []
    for x in queries:
        r_x = np.mean(sorted((cosine(x, y) for y in candidates), reverse=True)[:k])
        values = []
        for y in candidates:
            r_y = np.mean(sorted((cosine(s, y) for s in sources), reverse=True)[:k])
            values.append(2 * cosine(x, y) - r_x - r_y)
        best.append(int(np.argmax(values)))
    return best


def test_cosine_looks_at_directions_not_lengths():
    queries = np.array([[1, 0.1], [0, 5]], dtype=np.float32)
    candidates = np.array([[100, 100], [0.001, 0], [0, 0.1]], dtype=np.float32)
    assert nearest_cosine(queries, candidates).tolist() == [1, 2]


def test_cosine_is_the_same_across_blocks():
    rng = np.random.default_rng(1)
    queries, candidates = rng.normal(size=(2500, 6)), rng.normal(size=(300, 6))
    cosines = (queries @ candidates.T) / np.linalg.norm(candidates, axis=1)
    found = nearest_cosine(queries.astype(np.float32), candidates.astype(np.float32))
    assert found.tolist() == cosines.argmax(axis=1).tolist()


def test_csls_agrees_with_the_slow_reference():
    rng = np.random.default_rng(2)
    queries, candidates, sources = (rng.normal(size=(n, 5)).astype(np.float32) for n in (40, 50, 60))
    assert nearest_csls(queries, candidates, sources).tolist() == slow_csls(queries, candidates, sources, 10)


def test_csls_passes_over_a_hub_that_cosine_falls_for():
    # Candidate 0 lies near all sources: its mean cosine with them is (0.8 + 0.8 + 1) / 3, candidate 1's (0.6 + 0) / 3.
    sources = np.array([[1, 0, 0], [0.28, 0.96, 0], [0.8, 0.6, 0]], dtype=np.float32)
    candidates = np.array([[0.8, 0.6, 0], [0.7, 0, 0.714]], dtype=np.float32)
    assert nearest_cosine(sources[:1], candidates).tolist() == [0]
    assert nearest_csls(sources[:1], candidates, sources, neighbours=3).tolist() == [1]


def test_fewer_words_than_neighbours_use_all_of_them():
    vectors = np.eye(3, dtype=np.float32)
    assert nearest_csls(vectors, vectors, vectors, neighbours=10).tolist() == [0, 1, 2]


def test_a_zero_row_stays_zero():
    assert unit_rows(np.array([[0, 0], [3, 4]], dtype=np.float32)).tolist() == [
        [0, 0],
        [0.6000000238418579, 0.800000011920929],
    ]
