"""Which pairs a step aligns, which a control mismatches, which queue a run begins with: all follow from the seed."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from tests.unit.streams.pinned import assert_pinned
from xalign_ray.config.choices import DictionaryAlignment
from xalign_ray.objectives.dictionary_alignment import DictionaryAlignmentLoss
from xalign_ray.objectives.momentum_contrast import KeyQueue
from xalign_ray.objectives.objective import LossContext
from xalign_ray.vocabulary.dictionary import DictionaryPairs

SAMPLED = [[5, 11, 9, 4, 7], [1, 3, 10, 0, 7], [1, 3, 8, 10, 5]]
SHUFFLED = [2, 5, 4, 1, 3, 0, 8, 11, 9, 10, 7, 6]
QUEUED = [-917847, 311806, 245628, 935334, 281454, -214320]


def alignment(**settings: Any) -> DictionaryAlignmentLoss:
    """Over twelve pairs of one piece; the right word of pair n is piece 100 + n."""
    numbers = np.arange(12, dtype=np.int32)
    pairs = DictionaryPairs(numbers[:, None] + 50, numbers[:, None] + 100, numbers * 0, numbers // 6 + 1)
    return DictionaryAlignmentLoss(DictionaryAlignment(**settings), LossContext(pairs, 7, cast(Any, None), None))


def test_a_step_draws_the_pairs_that_it_drew_before():
    loss = alignment(pairs_per_step=5)
    assert_pinned([loss._slice((0, 1), step).tolist() for step in (0, 1, 1000)], SAMPLED)


def test_the_pairs_of_the_control():
    assert_pinned((alignment(shuffled=True).pieces[:, 1, 0] - 100).tolist(), SHUFFLED)


def test_the_queue_of_the_start():
    assert_pinned([round(value * 1e6) for value in KeyQueue(2, 3, 7).keys.flatten().tolist()], QUEUED)
