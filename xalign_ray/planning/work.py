"""Tokens and floating-point operations of a step, from the recipe alone: rows are full, and each is one example."""

from __future__ import annotations

import numpy as np

from xalign_ray.config.choices import CodeSwitchedCopy, ContrastedPairs, Stream
from xalign_ray.config.derive import derive_batch
from xalign_ray.config.scheduled import Scheduled, value_at
from xalign_ray.config.schema import RunConfig
from xalign_ray.models.operations import TRAINED, Operations, encoded_by
from xalign_ray.planning.figures import shares
from xalign_ray.planning.subject import Subject

_SAMPLES = 1000  # steps at which a number is looked at that changes over the steps


def tokens_of_row(config: RunConfig) -> float:
    """Tokens of a row, on average over the streams."""
    return sum(share * _tokens(config, stream) for stream, share in zip(config.streams, shares(config), strict=True))


def operations_of_row(config: RunConfig, subject: Subject) -> float:
    """Of a row, on average over the streams and the steps, forward and backward.

    What `models/operations.py` leaves out is left out. Attention is counted as of rows of one example, and all labels
    of aligned pairs as aligned: at most so much.
    """
    operations = Operations(subject.family, subject.values, config.model.conditioned_head)
    masked = mean_over_steps(config.masking.mlm_probability, config.train.max_steps)
    encoded = _encoded(config)
    whole = 0.0
    for stream, share in zip(config.streams, shares(config), strict=True):
        tokens = _tokens(config, stream)
        for name, passes in encoded.items():
            if not name:
                whole += share * passes * operations.forward(np.array([tokens]))
            elif isinstance(stream, ContrastedPairs):
                whole += share * passes * operations.forward(np.array([tokens // 2]))
        labelled = not isinstance(stream, ContrastedPairs) or stream.text != "none"
        heads = sum(one.predicts_pieces and one.stream in (None, stream.kind) for one in config.objectives)
        whole += share * labelled * heads * operations.of_labels(masked * tokens)
    return whole


def started_passes(config: RunConfig) -> float:
    """Forward and backward passes of a micro-step, however few tokens they are of."""
    return sum(_encoded(config).values()) / TRAINED


def mean_over_steps(scheduled: Scheduled, steps: int) -> float:
    """The mean of a number that may change over the steps of a run."""
    places = np.linspace(0, max(0, steps - 1), min(max(1, steps), _SAMPLES))
    return float(np.mean([value_at(scheduled, int(step)) for step in places]))


def _encoded(config: RunConfig) -> dict[str, int]:
    return encoded_by(config.objectives, derive_batch(config).accumulation)


def _tokens(config: RunConfig, stream: Stream) -> int:
    """What prepare fills of a row, which copies double to the whole of it."""
    return config.data.max_seq_length if isinstance(stream, CodeSwitchedCopy) else config.data.capacity
