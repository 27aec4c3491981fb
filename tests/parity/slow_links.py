"""Links between the words of a pair as XLM-Align labels them itself, slow and obvious: one pair, lists and loops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def slow_links(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> set[tuple[int, int]]:
    """Links of hidden states of the words of two sentences."""
    m, n = len(first), len(second)
    plan = [[max(1e-6, float(np.dot(a, b))) for b in second] for a in first]
    for _ in range(2):
        columns = [sum(plan[i][j] for i in range(m)) for j in range(n)]
        plan = [[plan[i][j] / columns[j] for j in range(n)] for i in range(m)]
        plan = [[value / sum(line) for value in line] for line in plan]
    if min(m, n) == 1:  # a plan tells nothing
        plan = [[float(np.dot(a, b)) for b in second] for a in first]
    links = _best_of_both(plan)
    free_first = set(range(m)) - {i for i, _ in links}
    free_second = set(range(n)) - {j for _, j in links}
    if not free_first or not free_second:
        return links
    again = [[0.0] * n for _ in range(m)]
    for i in range(m):
        for j in range(n):
            free = (i in free_first) + (j in free_second)
            again[i][j] = plan[i][j] * (0.0, 0.9, 1.0)[free]
    return links | {(i, j) for i, j in _best_of_both(again) if i in free_first or j in free_second}


def _best_of_both(plan: Sequence[Sequence[float]]) -> set[tuple[int, int]]:
    found = set()
    for i, line in enumerate(plan):
        j = max(range(len(line)), key=lambda place: line[place])
        if max(range(len(plan)), key=lambda place: plan[place][j]) == i:
            found.add((i, j))
    return found
