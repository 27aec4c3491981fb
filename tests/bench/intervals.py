"""Simulates experiments of a known difference: how often its 95 % interval excludes zero, by languages and seeds.

python tests/bench/intervals.py       # the tables of docs/explanation/statistics.md, a minute
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t

from xalign_ray.results.difference import uncertainty

SHAPES = ((1, 3), (3, 1), (3, 3), (5, 3), (14, 5), (14, 3), (40, 3))  # languages, seeds
SOURCES = {"seeds vary more": (1.0, 2.0, 1.0), "languages vary more": (2.0, 1.0, 1.0)}  # languages, seeds, both: sd
EXPERIMENTS = 4000
ARMS = (2, 4, 8)
LEVEL = 0.05
_CHUNK = 1000  # experiments at once: 10 arms of 40 languages and 3 seeds are 10 MB


@dataclass(frozen=True)
class Case:
    """Equal arms, the first of which is the baseline.

    Attributes:
        spreads: of each arm: standard deviations of languages, seeds and the rest.
        groups: of each language; none: all languages are independent.
        related: the correlation of languages of a group.
        known: whether the report knows the groups.
        paired: whether arms have seeds in common.
        seen: the seeds that were run, of all arms where they are paired, else of the baseline; 0: all.
    """

    languages: int
    seeds: int
    spreads: Sequence[tuple[float, float, float]]
    groups: Sequence[str] = ()
    related: float = 0.0
    known: bool = True
    paired: bool = True
    seen: int = 0

    def draw(self, random: np.random.Generator, experiments: int) -> np.ndarray:
        """[experiments, arms, languages, seeds] scores without a true difference.

        A single language or seed is what the difference is about: its effect on an arm is no error.
        """
        size = experiments, len(self.spreads), self.languages, self.seeds
        spread = np.array(self.spreads)[..., None, None]
        scores = spread[:, 2] * random.standard_normal(size)
        if self.languages > 1:
            effects = random.standard_normal((*size[:3], 1))
            if self.groups:
                _, group_of = np.unique(self.groups, return_inverse=True)
                shared = random.standard_normal((*size[:2], group_of.max() + 1, 1))[:, :, group_of]
                effects = np.sqrt(self.related) * shared + np.sqrt(1 - self.related) * effects
            scores += spread[:, 0] * effects
        if self.seeds > 1:
            scores += spread[:, 1] * random.standard_normal((*size[:2], 1, self.seeds))
        return scores

    def p_values(self, scores: np.ndarray) -> np.ndarray:
        """[experiments, arms - 1] of the difference of each arm from the first."""
        groups = self.groups if self.groups and self.known else range(self.languages)
        scores = scores[..., : self.seen] if self.seen and self.paired else scores
        base = scores[:, 0, :, : self.seen or self.seeds]
        found = []
        for arm in range(1, scores.shape[1]):
            own = scores[:, arm]
            gaps = own.mean(axis=-1) - base.mean(axis=-1)
            error, degrees, _ = uncertainty(gaps, [own - base] if self.paired else [own, base], [*map(str, groups)])
            found.append(2 * t.sf(np.abs(gaps.mean(axis=-1)) / error, degrees))
        return np.stack(found, axis=1)


def excluded(p_values: np.ndarray) -> np.ndarray:
    """[experiments, arms - 1] whether Holm's interval of each difference excludes zero."""
    order = np.argsort(p_values, axis=1)
    steps = LEVEL / np.arange(p_values.shape[1], 0, -1)
    significant = np.logical_and.accumulate(np.take_along_axis(p_values, order, axis=1) <= steps, axis=1)
    return np.take_along_axis(significant, np.argsort(order, axis=1), axis=1)


def rates(case: Case, effect: float = 0.0) -> tuple[float, float, float]:
    """How often a single interval excludes zero, any of all of Holm, and the highest arm is called best.

    Args:
        effect: added to all arms but the first, in standard deviations of the difference in one language with one seed.
    """
    random = np.random.default_rng(0)
    counts = case.languages, case.seeds, 2
    varying = [sd for sd, count in zip(case.spreads[0], counts, strict=True) if count > 1]
    single, several, best = [], [], []
    for _ in range(EXPERIMENTS // _CHUNK):
        scores = case.draw(random, _CHUNK)
        scores[:, 1:] += effect * np.sqrt(2 * np.square(varying).sum())
        p_values = case.p_values(scores)
        decided, means = excluded(p_values), scores.mean(axis=(-2, -1))
        highest = means.argmax(axis=1)  # the first is compared with the next
        compared = np.where(highest > 0, highest - 1, means[:, 1:].argmax(axis=1))
        single.append((p_values <= LEVEL).mean())
        several.append(decided.any(axis=1).mean())
        best.append(np.take_along_axis(decided, compared[:, None], axis=1).mean())
    return float(np.mean(single)), float(np.mean(several)), float(np.mean(best))


ALIKE, BY_LANGUAGE, QUIET_SEEDS = (1.0, 1.0, 1.0), (2.0, 0.5, 0.5), (3.0, 0.1, 0.1)
CASES = {
    "eight arms, one with 5 times the spread": Case(8, 3, [ALIKE] * 7 + [(5.0, 5.0, 5.0)]),
    "eight arms, one with 10 times the spread": Case(8, 3, [ALIKE] * 7 + [(10.0, 10.0, 10.0)]),
    "ten arms, the base with 4 times the spread": Case(8, 3, [(4.0, 4.0, 4.0)] + [ALIKE] * 9),
    "one base fine-tuned as often as ten arms (3)": Case(3, 3, [(1.0, 1.5, 1.0)] * 11, paired=False),
    "the same, arms that vary a third as much": Case(3, 3, [(1.0, 1.5, 1.0)] + [(1.0, 0.5, 1.0)] * 10, paired=False),
    **{
        f"{name}, {related:g}": Case(len(groups), 3, [BY_LANGUAGE] * 11, groups, related)
        for name, groups in {
            "seven related languages and three alone": [*"aaaaaaabcd"],
            "ten languages of six families": [*"aaaabbcdef"],
            "eight languages of three families": [*"aaabbbcc"],
        }.items()
        for related in (0.0, 0.5, 0.8)
    },
}
# What the report therefore does not decide; of the last it cannot know.
UNDECIDED = {
    "one seed, which varies as languages do": Case(9, 2, [ALIKE] * 2, seen=1),
    "a base fine-tuned once beside ten arms of three seeds": Case(3, 3, [(1.0, 1.5, 1.0)] * 11, paired=False, seen=1),
    **{
        f"two families of three languages, {related:g}": Case(6, 3, [QUIET_SEEDS] * 11, [*"aaabbb"], related)
        for related in (0.3, 0.5, 0.8)
    },
    "six trained and two untrained languages, 0.5": Case(8, 3, [QUIET_SEEDS] * 11, [*"aaaaaabb"], 0.5),
    "the same, taken for independent": Case(8, 3, [QUIET_SEEDS] * 11, [*"aaaaaabb"], 0.5, known=False),
}


def tables() -> Iterator[str]:
    """The tables, line by line, in percent: shapes with true differences of 0, 1 and 2, equal arms, and hard cases."""
    yield "| languages x seeds | " + " | ".join(f"{name}: {effect}" for name in SOURCES for effect in (0, 1, 2)) + " |"
    for shape in SHAPES:
        cells = [rates(Case(*shape, [spread] * 2), effect)[0] for spread in SOURCES.values() for effect in (0, 1, 2)]
        yield f"| {shape[0]} x {shape[1]} | " + " | ".join(f"{100 * share:.1f}" for share in cells) + " |"
    yield "| equal arms | any interval excludes zero | the highest is called best |"
    for arms in ARMS:
        cells = [rates(Case(*shape, [spread] * arms))[1:] for spread in SOURCES.values() for shape in SHAPES]
        columns = [f"{100 * min(shares):.1f} to {100 * max(shares):.1f}" for shares in zip(*cells, strict=True)]
        yield f"| {arms} | " + " | ".join(columns) + " |"
    yield "| shape | a single interval excludes zero | any of all |"
    for name, case in {**CASES, **UNDECIDED}.items():
        single, several, _ = rates(case)
        yield f"| {name} | {100 * single:.1f} | {100 * several:.1f} |"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in tables())
