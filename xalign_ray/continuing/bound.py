"""A bound on what may be lost: the mixture of trained and first weights that gains most within it.

Mixtures are chosen on one half of the test and kept sentences, and reported on the other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from xalign_ray.config.language_codes import ENGLISH, name_of_pair
from xalign_ray.continuing.comparison import BaseComparison, Kept, Row
from xalign_ray.continuing.files import THE_TEST
from xalign_ray.results.difference import Interval, MeanEstimate, accuracy_gain
from xalign_ray.tasks.retrieval import TranslatedSentences

T = TypeVar("T")
SHARES = (0.25, 0.5, 0.75, 1.0)
_BETTER = {"retrieval": 1, "mlm_loss": -1}  # the measures that are bound, and whether a higher value is better


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Gain and loss of a share of the trained weights on the half of the sentences that chooses.

    Attributes:
        share: in [0, 1] of the trained weights; the rest are those that training began with.
        gain: of the mean retrieval in trained languages; None without test pairs.
        kept: of each measure the mean change over all kept sets, and its 95 % interval; below 0 is a loss.
        lost: kept sets that have surely lost more than the bound.
        holds: whether a mean loss of the bound is excluded, and no set is lost.
    """

    share: float
    gain: float | None
    kept: Mapping[str, tuple[float, float, float]]
    lost: Sequence[str]
    holds: bool


class Sentences(NamedTuple):
    """What both encoders are compared on; see `comparison.compare_with_base`."""

    tests: Sequence[TranslatedSentences]
    kept: Sequence[TranslatedSentences]
    texts: Sequence[Kept]

    def half(self, number: int) -> Sentences:
        """Every second pair and text, from `number` (0 or 1); a single one is in both halves."""

        def every_second(texts: Sequence[T]) -> Sequence[T]:
            return texts[number::2] or texts

        def of_pairs(pairs: TranslatedSentences) -> TranslatedSentences:
            pairs = pairs.thinned()
            return replace(pairs, first=every_second(pairs.first), second=every_second(pairs.second))

        texts = [replace(kept, texts=every_second(kept.texts)) for kept in self.texts]
        return Sentences([*map(of_pairs, self.tests)], [*map(of_pairs, self.kept)], texts)


def judge_mixture(share: float, compared: BaseComparison, bound: float) -> Mixture:
    """Judges the gain and the loss of a mixture.

    Args:
        bound: points; of a masked-LM loss hundredths of a nat.
    """
    rows = [*zip(compared.rows, compared.estimates, strict=True)]
    gains = [row.difference for row, _ in rows if _is_gained(row) and row.measure == "retrieval"]
    kept, lost, holds = dict[str, tuple[float, float, float]](), dict[str, None](), True
    for measure, better in _BETTER.items():
        estimates, ends = list[MeanEstimate](), list[Interval]()
        for row, estimate in rows:
            if row.measure != measure or _is_gained(row):
                continue
            if estimate is None or row.low is None or row.high is None:
                holds = False  # a single sentence excludes nothing
                continue
            estimates.append(estimate)
            ends.append((row.low, row.high) if better > 0 else (-row.high, -row.low))
            if ends[-1][1] < -bound / 100:
                lost[row.language] = None
        if estimates:
            mean = better * math.fsum(estimate.value for estimate in estimates) / len(estimates)
            error = math.sqrt(math.fsum(estimate.standard_error**2 for estimate in estimates)) / len(estimates)
            error = max(error, _shared_error(compared, measure))
            low, high = MeanEstimate(mean, error, min(estimate.degrees for estimate in estimates)).interval()
            kept[measure] = mean, low, high
            holds = holds and low > -bound / 100
    return Mixture(
        share=share,
        gain=math.fsum(gains) / len(gains) if gains else None,
        kept=kept,
        lost=[*lost],
        holds=holds and bool(kept) and not lost,
    )


def _shared_error(compared: BaseComparison, measure: str) -> float:
    """The standard error of the mean change over kept pairs, whose sets may share sentences, such as English ones.

    The changes of all pairs of a sentence are added before they are squared, with the two that `accuracy_gain` adds:
    of sets without a sentence in common it is the error of independent ones. 0 of other measures.
    """
    kept = {(row.language, row.split) for row in compared.rows if not _is_gained(row)}
    found = [scored for scored in compared.of_pairs if scored.measure == measure]
    found = [one for one in found if (name_of_pair(*one.pairs.languages), one.pairs.split) in kept]
    changes = defaultdict[tuple[str, float], float](float)
    for scored in found:
        pairs, gain = scored.pairs, accuracy_gain(scored.base, scored.yours)
        gaps = np.concatenate([scored.yours - scored.base, [1.0, -1.0]])
        texts = pairs.texts[ENGLISH in pairs.languages and pairs.languages.index(ENGLISH)]
        keys = [*((text, 0.0) for text in texts), (texts[0], 1.0), (texts[0], -1.0)]
        for key, change in zip(keys, (gaps - gain.value) / len(gaps) / len(found), strict=True):
            changes[key] += float(change)
    return math.sqrt(math.fsum(change**2 for change in changes.values()))


def _is_gained(row: Row) -> bool:
    """Whether a row is of the test in trained languages; all others must not get worse, English text too."""
    return row.trained and row.split == THE_TEST


def choose(mixtures: Sequence[Mixture]) -> Mixture:
    """The mixture that holds the bound and gains most; if none holds it, the one that may have lost least."""
    if holding := [mixture for mixture in mixtures if mixture.holds]:
        return max(holding, key=lambda mixture: (mixture.gain or 0.0, mixture.share))
    return max(mixtures, key=lambda mixture: min((low for _, low, _ in mixture.kept.values()), default=0.0))


def find_mixture(score: Callable[[float], BaseComparison], bound: float) -> dict[str, Any]:
    """Scores each share, and chooses; as comparison.json has it.

    Args:
        score: compares the mixture of a share with the base, on the half that chooses.
    """
    mixtures = [judge_mixture(share, score(share), bound) for share in SHARES]
    chosen = choose(mixtures)
    return {
        "lose_at_most": bound,
        "share": chosen.share,
        "holds": chosen.holds,
        "mixtures": [asdict(mixture) for mixture in mixtures],
    }
