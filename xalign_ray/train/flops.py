"""Counts the floating-point operations that a step needs, however they are done, and what a device could do at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from xalign_ray.models.encoder import AlignedEncoder
from xalign_ray.objectives.combine import Objectives

TRAINED = 3  # forward passes: a backward pass takes twice what its forward pass takes
# Dense bf16 products, TFLOP/s, from NVIDIA's data sheets; a name is looked for in the device's, longer ones first.
PEAKS: Mapping[str, float] = {
    "B200": 2250,
    "H200": 989,
    "GH200": 989,
    "H100": 989,
    "H100 NVL": 835,
    "H100 PCIe": 756,
    "A100": 312,
    "L40S": 362,
    "L4": 121,
    "A10": 125,
}


class Flops:
    """Of an encoder and its losses: 6 a weight and token, attention by the lengths of examples, the head by labels.

    Weights are those of the layers, without embeddings. What is done over padding or again for memory's sake is not
    counted, nor are the words that dictionary_alignment encodes one by one, and word_exchange's use of the head.
    Source: Kaplan et al. 2020, section 2.1; Chowdhery et al. 2022, appendix B.
    """

    def __init__(self, objectives: Objectives) -> None:
        encoder = cast(AlignedEncoder, objectives.encoder)
        values, d = encoder.hf.config.to_dict(), encoder.hidden_size
        counts = encoder.family.count(values, read_by_head=2 * d if encoder.conditioned else d)
        self._a_token = 2 * counts.layers
        self._a_label = 2 * (counts.head + d * values["vocab_size"])
        self._a_pair = 4 * d  # of tokens that see each other, in a layer: a product for its score and one for its sum
        self._windows = Counter(encoder.family.windows(encoder.hf.config))
        self._encoded = {name: passes for loss in objectives.losses.values() for name, passes in loss.encoded.items()}
        self._predicting = [kind for kind, loss in objectives.losses.items() if loss.predicts]

    def of_rows(self, batch: Mapping[str, np.ndarray]) -> float:
        """What encoding a batch takes."""
        given = {name: batch[f"{name}example_ids"] for name in self._encoded if f"{name}example_ids" in batch}
        return sum(self._encoded[name] * self._forward(example_lengths(ids)) for name, ids in given.items())

    def of_labels(self, counts: Mapping[str, float]) -> float:
        """What predicting takes, by the counts of the losses."""
        return TRAINED * self._a_label * sum(counts[kind] for kind in self._predicting)

    def _forward(self, lengths: NDArray[np.int64]) -> float:
        pairs = sum(layers * seen_pairs(lengths, window).sum() for window, layers in self._windows.items())
        return float(self._a_token * lengths.sum() + self._a_pair * pairs)


def example_lengths(example_ids: NDArray) -> NDArray[np.int64]:
    """The tokens of each example of packed rows [B, L], whose examples are 1, 2, ... and padding 0."""
    stride = int(example_ids.max(initial=0)) + 1
    places = np.arange(len(example_ids))[:, None] * stride + example_ids
    counts = np.bincount(places[example_ids > 0])
    return counts[counts > 0]


def seen_pairs(lengths: NDArray[np.int64], window: int | None) -> NDArray[np.int64]:
    """How many pairs of tokens of an example see each other: all, or those at most `window` tokens apart."""
    if window is None:
        return lengths**2
    near = np.minimum(window, lengths - 1)
    return lengths * (2 * near + 1) - near * (near + 1)


def peak_tflops(device_name: str, peaks: Mapping[str, float] = PEAKS) -> float | None:
    """What a device of that name could do at most in bf16, TFLOP/s; None where it is not known."""
    known: Sequence[str] = sorted(peaks, key=len, reverse=True)
    words = f" {device_name.replace('-', ' ')} "
    return next((peaks[name] for name in known if f" {name} " in words), None)
