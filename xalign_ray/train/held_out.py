"""The masked-LM loss on held-out rows, a number for each language, while training goes on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xalign_ray.objectives.combine import Objectives
from xalign_ray.train.distributed import Workers
from xalign_ray.train.engine import Engine
from xalign_ray.train.step import Share, tensors

KIND = "masked_lm"


def held_out_losses(
    engine: Engine, shares: Sequence[tuple[str, Share]], languages: Sequence[str], workers: Workers
) -> dict[str, float]:
    """Mean masked-LM loss of each language, nats a label; languages without a held-out label are left out.

    Args:
        shares: (language, rows) of this rank; as many on each rank, some possibly with no rows.
        languages: the run's languages in order.
    """
    sums, labels = np.zeros(len(languages)), np.zeros(len(languages))
    with engine.scoring():
        for language, share in shares:
            at = languages.index(language)
            part = (workers.rank, workers.size)
            sums[at] += float(engine.forward(tensors(share, workers.device), part, 0, (KIND,))[KIND])
            labels[at] += (share["labels"] != -100).sum()
    summed = workers.sum([*sums, *labels])
    pairs = zip(languages, summed[: len(languages)], summed[len(languages) :], strict=True)
    return {language: total / count for language, total, count in pairs if count}


def can_score(objectives: Objectives) -> bool:
    """Whether the recipe has the objective that held-out rows are scored by."""
    return KIND in objectives.weights
