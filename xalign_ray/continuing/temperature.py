"""The temperature of a contrast, by the loss that an encoder has before training."""

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
    chance, and a contrast first spreads all its vectors, also of other sentences. Where an encoder finds no
    translations, the loss of the largest is least.
    """
    from xalign_ray.models.vectors import SentenceVectors  # torch

    of_corpora = (
        (
            [*zip(pair, corpus.languages, strict=True)]
            for pair in islice(read_pairs(corpus, max_bad_fraction=1.0), PAIRS)
        )
        for corpus in islice(corpora, PAIRS)
    )
    pairs = [*islice((pair for pair in chain.from_iterable(zip_longest(*of_corpora)) if pair), PAIRS)]
    sides = [zip(*(pair[side] for pair in pairs), strict=True) for side in (0, 1)]
    vectors = SentenceVectors(encoder)
    first, second = (unit_rows(vectors.encode(texts, languages)) for texts, languages in sides)
    cosines = (first @ second.T).astype(np.float64)
    return min(TEMPERATURES, key=lambda temperature: contrastive_loss(cosines / temperature))


def contrastive_loss(logits: NDArray[np.float64]) -> float:
    """The mean over both directions of the cross-entropy of each pair among the others, [N, N] with pairs at [i, i]."""
    return float(np.mean([np.logaddexp.reduce(logits, axis=axis) - np.diag(logits) for axis in (0, 1)]))
