"""Simulates experiments of a known difference: how often its 95 % interval excludes zero, by languages and seeds.

python tests/bench/intervals.py       # the tables of docs/explanation/statistics.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

from xalign_ray.results.difference import critical, paired_uncertainty, unpaired_uncertainty

SHAPES = ((1, 3), (3, 1), (3, 3), (5, 3), (14, 5), (14, 3), (40, 3))  # languages, seeds
SOURCES = {"seeds vary more": (1.0, 2.0, 1.0), "languages vary more": (2.0, 1.0, 1.0)}  # languages, seeds, both: sd
EXPERIMENTS = 4000
ARMS = (2, 4, 8)
_CHUNK = 1000  # experiments at once: 8 arms of 40 languages and 3 seeds are 8 MB


def draw(
    random: np.random.Generator, experiments: int, arms: int, shape: tuple[int, int], spread: tuple[float, float, float]
) -> np.ndarray:
    """[experiments, arms, languages, seeds] scores without a true difference.

    A single language or seed is what the difference is about: its effect on an arm is no error.
    """
    languages, seeds = shape
    of_language, of_seed, rest = spread
    scores = rest * random.standard_normal((experiments, arms, languages, seeds))
    if languages > 1:
        scores += of_language * random.standard_normal((experiments, arms, languages, 1))
    if seeds > 1:
        scores += of_seed * random.standard_normal((experiments, arms, 1, seeds))
    return scores


def deviation(shape: tuple[int, int], spread: tuple[float, float, float]) -> float:
    """Standard deviation of the difference of two arms in one language with one seed."""
    varying = [sd for sd, count in zip(spread, (*shape, 2), strict=True) if count > 1]
    return float(np.sqrt(2 * np.square(varying).sum()))


def excluded(scores: np.ndarray, paired: bool = True) -> np.ndarray:
    """[experiments, arms - 1] whether the interval of each arm less the first one excludes zero."""
    means = scores.mean(axis=(-2, -1))
    gaps = means[:, 1:] - means[:, :1]
    found = paired_uncertainty(scores) if paired else unpaired_uncertainty(scores[:, 1], scores[:, 0])
    return np.abs(gaps) > (found.standard_error * critical(found.degrees, gaps.shape[1]))[:, None]


def best_is_declared(scores: np.ndarray) -> np.ndarray:
    """[experiments] whether the highest arm is called best: against the first, which is compared with the next."""
    means, decided = scores.mean(axis=(-2, -1)), excluded(scores)
    best = means.argmax(axis=1)
    compared = np.where(best > 0, best - 1, means[:, 1:].argmax(axis=1))
    return np.take_along_axis(decided, compared[:, None], axis=1)[:, 0]


def rate(shape: tuple[int, int], spread: tuple[float, float, float], effect: float = 0, paired: bool = True) -> float:
    """The share of experiments in which the interval excludes zero; `effect` in standard deviations."""
    random = np.random.default_rng(0)
    scores = draw(random, EXPERIMENTS, 2, shape, spread)
    scores[:, 1] += effect * deviation(shape, spread)
    return float(excluded(scores, paired).mean())


def family_rates(arms: int, shape: tuple[int, int], spread: tuple[float, float, float]) -> tuple[float, float]:
    """Of equal arms: how often any interval excludes zero, and how often the highest is called best."""
    random = np.random.default_rng(0)
    chunks = [draw(random, _CHUNK, arms, shape, spread) for _ in range(EXPERIMENTS // _CHUNK)]
    wrong = np.concatenate([excluded(chunk).any(axis=1) for chunk in chunks])
    return float(wrong.mean()), float(np.concatenate([best_is_declared(chunk) for chunk in chunks]).mean())


def tables() -> Iterator[str]:
    """Both tables, line by line, in percent: shapes with true differences of 0, 1 and 2, and families of equal arms."""
    yield "| languages x seeds | " + " | ".join(f"{name}: {effect}" for name in SOURCES for effect in (0, 1, 2)) + " |"
    for shape in SHAPES:
        rates = [rate(shape, spread, effect) for spread in SOURCES.values() for effect in (0, 1, 2)]
        yield f"| {shape[0]} x {shape[1]} | " + " | ".join(f"{100 * share:.1f}" for share in rates) + " |"
    yield "| equal arms | any interval excludes zero | the highest is called best |"
    for arms in ARMS:
        rates = [family_rates(arms, shape, spread) for spread in SOURCES.values() for shape in SHAPES]
        columns = [f"{100 * min(shares):.1f} to {100 * max(shares):.1f}" for shares in zip(*rates, strict=True)]
        yield f"| {arms} | " + " | ".join(columns) + " |"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in tables())
