"""A bound on what may be lost: the mixture of trained and first weights that gains most within it.

Mixtures are chosen on one half of the test and kept sentences, and reported on the other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from xalign_ray.continuing.comparison import BaseComparison
from xalign_ray.continuing.sentence_sets import Change, PairSet, QuerySet, SentenceSet
from xalign_ray.results.continued import MEASURES, is_kept
from xalign_ray.results.difference import ADDED, MeanEstimate, accuracy_gain

SHARES = (0.25, 0.5, 0.75, 1.0)
BETWEEN = 0.125  # above the largest of these that holds, one more is tried


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Gain and loss of a share of the trained weights on the half of the sentences that chooses.

    Attributes:
        share: in [0, 1] of the trained weights; the rest are those that training began with.
        gain: of the mean retrieval in trained languages; None without test pairs.
        kept: of each measure the mean change over all kept sets, and its 95 % interval; below 0 is a loss.
        lost: of each measure the kept sets that have surely lost more than the bound, as "fr, ru (similarity)".
        holds: whether a mean loss of the bound is excluded in each measure, and no set is lost.
    """

    share: float
    gain: float | None
    kept: Mapping[str, tuple[float, float, float]]
    lost: Sequence[str]
    holds: bool


def judge_mixture(share: float, compared: BaseComparison, bound: float) -> Mixture:
    """Judges the gain and the loss of a mixture.

    Args:
        bound: points; of a masked-LM loss hundredths of a nat.
    """
    pairs = zip(compared.rows, compared.changes, strict=True)
    kept_rows = [(row, change) for row, change in pairs if is_kept(vars(row))]
    gains = [row.difference for row in compared.rows if row.measure == "retrieval" and not is_kept(vars(row))]
    means, lost, holds = dict[str, tuple[float, float, float]](), list[str](), True
    for name, measure in ((name, measure) for name, measure in MEASURES.items() if measure.is_bound):
        of_measure = [(row, change) for row, change in kept_rows if row.measure == name]
        changes = [change for _, change in of_measure]
        estimates = [change.estimate for change in changes if change.estimate]
        holds = holds and len(estimates) == len(changes)  # a single sentence excludes nothing
        surely = dict.fromkeys(
            row.language
            for row, _ in of_measure
            if (best := row.high if measure.better > 0 else row.low) is not None
            and measure.better * best < -bound / 100
        )
        lost += [f"{', '.join(surely)} ({measure.short})"] * bool(surely)
        if estimates:
            mean = measure.better * math.fsum(estimate.value for estimate in estimates) / len(estimates)
            error = math.sqrt(math.fsum(estimate.standard_error**2 for estimate in estimates)) / len(estimates)
            error = max(error, _shared_error(changes))
            low, high = MeanEstimate(mean, error, min(estimate.degrees for estimate in estimates)).interval()
            means[name] = mean, low, high
            holds = holds and low > -bound / 100
    return Mixture(
        share=share,
        gain=math.fsum(gains) / len(gains) if gains else None,
        kept=means,
        lost=lost,
        holds=holds and bool(means) and not lost,
    )


def _shared_error(changes: Sequence[Change]) -> float:
    """The standard error of the mean change over sets that may share items: sentences, rows of a file, queries.

    The parts of an item in several sets are summed before they are squared: of sets without a common item the result
    is the error of independent ones. Of means one more item gains and one loses, as in `accuracy_gain`, each as much as
    the item that moved the mean most; where none did, as an item that changes in all sets.
    """
    sums, moves, weights = (defaultdict[Hashable, float](float) for _ in range(3))
    for change in changes:
        for item, part in change.parts.items():
            sums[item] += part / len(changes)
        for item, move in change.moves.items():
            moves[item] += move / len(changes)
            weights[item] += 1 / (len(change.of) + ADDED) / len(changes)
    largest = max(map(abs, moves.values()), default=0.0) or max(weights.values(), default=0.0)
    return math.sqrt(math.fsum(part**2 for part in sums.values()) + ADDED * largest**2)


def note_small_sets(kept: Sequence[SentenceSet], bound: float) -> list[str]:
    """A sentence on each kind of kept sets whose half cannot show the bound even if nothing changes.

    A mean of n numbers in [0, 1] has the interval of one gained and one lost (`accuracy_gain`), about 2.8 / n.
    """
    notes = []
    for kind in (PairSet, QuerySet):
        halves = [measured.half(0) for measured in kept if isinstance(measured, kind)]
        unchanged = [accuracy_gain(np.zeros(len(half)), np.zeros(len(half))) for half in halves]
        error = math.sqrt(math.fsum(estimate.standard_error**2 for estimate in unchanged)) / max(1, len(halves))
        reach = -100 * MeanEstimate(0.0, error).interval()[0]
        if reach > bound:
            items, languages = sum(map(len, halves)), ", ".join(half.language for half in halves)
            enough = 2 * math.ceil(items / len(halves) * reach / bound)
            notes.append(
                f"--lose-at-most {bound:g}: the {items:,} {kind.unit} of a half of {languages} show a loss of less "
                f"than {reach:.1f} points only where they gain. Give {enough:,} in each, allow more, or leave them out."
            )
    return notes


def choose(mixtures: Sequence[Mixture]) -> Mixture:
    """The mixture that holds the bound and gains most; if none holds it, the one that may have lost least."""
    if holding := [mixture for mixture in mixtures if mixture.holds]:
        return max(holding, key=lambda mixture: (mixture.gain or 0.0, mixture.share))
    return max(mixtures, key=lambda mixture: min((low for _, low, _ in mixture.kept.values()), default=0.0))


def find_mixture(score: Callable[[float], BaseComparison], bound: float) -> dict[str, Any]:
    """Scores each share, and one between the last that holds and the next, and chooses; as comparison.json has it.

    Args:
        score: compares the mixture of a share with the base, on the half that chooses.
    """
    mixtures = {share: judge_mixture(share, score(share), bound) for share in SHARES}
    within = max((share for share, mixture in mixtures.items() if mixture.holds), default=0.0)
    if within < 1:
        mixtures[within + BETWEEN] = judge_mixture(within + BETWEEN, score(within + BETWEEN), bound)
    chosen = choose([*mixtures.values()])
    return {
        "lose_at_most": bound,
        "share": chosen.share,
        "holds": chosen.holds,
        "mixtures": [asdict(mixture) for _, mixture in sorted(mixtures.items())],
    }
