"""Counts the floating-point operations that a step needs, by the lengths of its examples and by its labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
from numpy.typing import NDArray

from xalign_ray.models.encoder import AlignedEncoder
from xalign_ray.models.operations import Operations, encoded_by
from xalign_ray.objectives.combine import Objectives


class Flops:
    """Of an encoder and its losses; what counts and what does not is said in `models/operations.py`."""

    def __init__(self, objectives: Objectives, micro_steps: int = 1) -> None:
        encoder = cast(AlignedEncoder, objectives.encoder)
        self._operations = Operations(encoder.family, encoder.hf.config.to_dict(), encoder.conditioned)
        choices = [loss.settings for loss in objectives.losses.values()]
        self._encoded = encoded_by(choices, micro_steps)
        self._predicting = [kind for kind, loss in objectives.losses.items() if loss.predicts]

    def of_rows(self, batch: Mapping[str, np.ndarray]) -> float:
        """What encoding a batch takes."""
        given = {name: batch[f"{name}example_ids"] for name in self._encoded if f"{name}example_ids" in batch}
        return sum(self._encoded[name] * self._operations.forward(example_lengths(ids)) for name, ids in given.items())

    def of_labels(self, counts: Mapping[str, float]) -> float:
        """What predicting takes, by the counts of the losses."""
        return self._operations.of_labels(sum(counts[kind] for kind in self._predicting))


def example_lengths(example_ids: NDArray) -> NDArray[np.int64]:
    """The tokens of each example of packed rows [B, L], whose examples are 1, 2, ... and padding 0."""
    stride = int(example_ids.max(initial=0)) + 1
    places = np.arange(len(example_ids))[:, None] * stride + example_ids
    counts = np.bincount(places[example_ids > 0])
    return counts[counts > 0]
