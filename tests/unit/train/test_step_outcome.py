"""Numbers of a step: losses per counted thing, metrics as means, weights of that step."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from xalign_ray.train.step import Totals, _Pending

NO_TOTALS: dict[str, Any] = dict.fromkeys(
    ("batch_hash", "labels", "tokens", "positions", "cross_lingual", "no_room", "flops"), 0
) | {"language_tokens": [], "waits": [], "held": [], "by_rank": {}, "stop_asked": False, "checkpoint_written": False}

WEIGHTS: Any = {"masked_lm": [[0, 0.0], [10, 2.0]], "sentence_contrast": 0.5}


def test_losses_and_metrics_are_means_over_the_global_step() -> None:
    totals = Totals(counts={"masked_lm": 4.0, "sentence_contrast": 0.0}, **NO_TOTALS)
    taken = _Pending(5, totals, 1e-3, WEIGHTS, ["train/accuracy", "train/nothing", "train/cosine"], torch.zeros(0))
    numbers = [12.0, 7.0, 6.0, 8.0, 0.0, 0.0, -3.0, 2.0, 0.5]  # two sums, three (sum, count) of metrics, the norm
    outcome = taken.outcome(numbers)
    assert outcome.losses == {"masked_lm": 3.0, "sentence_contrast": 7.0}
    assert outcome.metrics == {"train/accuracy": 0.75, "train/cosine": -1.5}
    assert outcome.loss == pytest.approx(1.0 * 3.0 + 0.5 * 7.0), "weights of step 5"
    assert (outcome.gradient_norm, outcome.learning_rate) == (0.5, 1e-3)
