"""The masked-LM loss on held-out rows, a number for each language, while training goes on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xalign_ray.layout import NOT_PREDICTED
from xalign_ray.objectives.combine import Objectives
from xalign_ray.train.distributed import Workers
from xalign_ray.train.engine import Engine
from xalign_ray.train.micro_batch import RankBatch, tensors

KIND = "masked_lm"


def held_out_losses(
    engine: Engine,
    batches: Sequence[tuple[NDArray[np.integer], RankBatch]],
    languages: Sequence[str],
    workers: Workers,
) -> dict[str, float]:
    """Mean masked-LM loss of each language, nats a label; languages without a held-out label are left out.

    Args:
        batches: the language of each row, a number of `languages`, and rows of this rank, of whatever languages; as
            many on each rank, some possibly with no rows.
        languages: the run's languages in order.
    """
    sums, labels = np.zeros(len(languages)), np.zeros(len(languages))
    part = (workers.rank, workers.size)
    with engine.scoring():
        for language, batch in batches:
            of_label = engine.forward(tensors(batch, workers.device), part, 0, KIND)[KIND]
            asked = language[np.nonzero(batch["labels"] != NOT_PREDICTED)[0]]
            sums += np.bincount(asked, of_label.double().cpu().numpy(), len(languages))
            labels += np.bincount(asked, minlength=len(languages))
    summed = workers.sum([*sums, *labels])
    pairs = zip(languages, summed[: len(languages)], summed[len(languages) :], strict=True)
    return {language: total / count for language, total, count in pairs if count}


def can_score(objectives: Objectives) -> bool:
    """Whether the recipe has the objective that held-out rows are scored by."""
    return KIND in objectives.weights
