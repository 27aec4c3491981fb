"""The temperature of a contrast: the one at which an encoder already tells translations best, which moves it least."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice, zip_longest

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.schema import ParallelCorpus
from xalign_ray.models.nearest import unit_rows
from xalign_ray.models.open import Opened
from xalign_ray.sources.pair_forms import read_pairs

TEMPERATURES = (0.01, 0.02, 0.05)  # few: the same command has to find the same one on another machine
PAIRS = 64  # that are compared with each other


def own_temperature(encoder: Opened, corpora: Sequence[ParallelCorpus]) -> float:
    """The temperature of TEMPERATURES at which the encoder's own contrastive loss is least.

    An encoder that was trained at 0.01, such as E5, has cosines between 0.7 and 1: at 0.05 its loss is nearly that of
    chance, and a contrast first spreads all its vectors, those of other sentences too. Of an encoder that tells no
    translations apart the largest is best.
    """
    from xalign_ray.models.vectors import SentenceVectors  # torch

    firsts = (islice(read_pairs(corpus, max_bad_fraction=1.0), PAIRS) for corpus in islice(corpora, PAIRS))
    pairs = [*islice((pair for pair in chain.from_iterable(zip_longest(*firsts)) if pair), PAIRS)]
    vectors = SentenceVectors(encoder)
    first, second = (unit_rows(vectors.encode([pair[side] for pair in pairs])) for side in (0, 1))
    cosines = (first @ second.T).astype(np.float64)
    return min(TEMPERATURES, key=lambda temperature: contrastive_loss(cosines / temperature))


def contrastive_loss(logits: NDArray[np.float64]) -> float:
    """The mean over both directions of the cross-entropy of each pair among the others, [N, N] with pairs at [i, i]."""
    own = np.diag(logits)
    return float(np.mean([np.logaddexp.reduce(logits, axis=axis) - own for axis in (0, 1)]))
