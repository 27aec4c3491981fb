"""The schedule and the optimizer groups, as pure functions of the recipe."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from torch import nn
from transformers import get_wsd_schedule

from xalign_ray.config.training import AdamW, ScheduleConfig
from xalign_ray.train.optimizers import build_optimizer, learning_rate


@pytest.mark.parametrize(
    ("settings", "steps", "peak", "rates"),
    [
        pytest.param({}, 4, 2.0, [2.0, 1.5, 1.0, 0.5], id="without warm-up the first step has the peak"),
        pytest.param({"warmup_steps": 8}, 2, 9.0, [1.0, 2.0], id="a run shorter than its warm-up only rises"),
        pytest.param(
            {"warmup_steps": 2, "decay_steps": 5}, 6, 3.0, [1.0, 2.0, 3.0, 2.25, 1.5, 0.75],
            id="a decay longer than the rest begins behind the warm-up",
        ),
        pytest.param(
            {"warmup_steps": 4, "decay_steps": 10}, 30, 0.003,
            [0.0006, 0.0012, 0.0018, 0.0024, *[0.003] * 16, *(0.003 * (1 - step / 10) for step in range(10))],
            id="the peak between warm-up and decay",
        ),
    ],
)  # fmt: skip
def test_rates_of_a_schedule(settings: dict[str, Any], steps: int, peak: float, rates: list[float]):
    schedule = ScheduleConfig(**settings)
    assert [learning_rate(schedule, step, steps, peak) for step in range(steps)] == pytest.approx(rates)


def test_biases_and_layer_norms_are_not_decayed_and_frozen_weights_not_trained():
    module = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2))
    module[3].requires_grad_(False)
    optimizer = build_optimizer(module, AdamW(learning_rate=0.5, weight_decay=0.25, beta1=0.8, beta2=0.9, epsilon=1e-3))
    decayed, plain = optimizer.param_groups
    assert [tuple(p.shape) for p in decayed["params"]] == [(5, 4), (3, 4)]
    assert decayed["weight_decay"] == 0.25
    assert [tuple(p.shape) for p in plain["params"]] == [(3,), (3,), (3,)]
    assert plain["weight_decay"] == 0.0
    assert {(g["lr"], g["betas"], g["eps"]) for g in optimizer.param_groups} == {(0.5, (0.8, 0.9), 1e-3)}


@pytest.mark.parametrize("decay_type", ["linear", "cosine", "1-sqrt"])
@pytest.mark.parametrize("low", [0.0, 0.02])
def test_warm_up_stable_decay_is_that_of_transformers(decay_type: Literal["linear", "cosine", "1-sqrt"], low: float):
    """After the warm-up, whose first rate is 0 there."""
    steps, warmup, decay = 40, 5, 12
    weight = nn.Parameter(torch.zeros(1))
    theirs = get_wsd_schedule(
        torch.optim.SGD([weight], lr=2.0),
        num_warmup_steps=warmup,
        num_decay_steps=decay,
        num_training_steps=steps,
        decay_type=decay_type,
        min_lr_ratio=low,
    )
    schedule = ScheduleConfig(warmup_steps=warmup, decay_steps=decay, decay_type=decay_type, min_lr_ratio=low)
    ours = [learning_rate(schedule, step, steps, 2.0) for step in range(warmup, steps)]
    assert ours == pytest.approx([2.0 * theirs.lr_lambdas[0](step) for step in range(warmup, steps)], rel=1e-12)
    assert ours[: steps - decay - warmup] == [2.0] * (steps - decay - warmup)
