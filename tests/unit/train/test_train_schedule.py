"""The schedule and the optimizer groups, as pure functions of the recipe."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import get_wsd_schedule

from xalign_ray.config.load import load_recipe
from xalign_ray.config.training import AdamW
from xalign_ray.train.optimizers import build_optimizer, learning_rate, rate_of


def test_without_warm_up_the_first_step_has_the_peak():
    assert learning_rate(0, 4, 0, 2.0) == 2.0


def test_a_run_shorter_than_its_warm_up_only_rises():
    assert [learning_rate(step, 2, 8, 9.0) for step in range(2)] == [1.0, 2.0]


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
def test_warm_up_stable_decay_is_that_of_transformers(decay_type: str, low: float):
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
    ours = [learning_rate(step, steps, warmup, 2.0, decay, decay_type, low) for step in range(warmup, steps)]
    assert ours == pytest.approx([2.0 * theirs.lr_lambdas[0](step) for step in range(warmup, steps)], rel=1e-12)
    assert ours[: steps - decay - warmup] == [2.0] * (steps - decay - warmup)


def test_a_decay_that_is_longer_than_what_the_warm_up_leaves_begins_behind_it():
    assert [learning_rate(step, 6, 2, 3.0, 5) for step in range(6)] == [1.0, 2.0, 3.0, 2.25, 1.5, 0.75]


def test_a_step_s_rate_is_that_of_the_recipe_s_schedule():
    settings = ["train.max_steps=30", "train.schedule={warmup_steps: 4, decay_steps: 10}"]
    train = load_recipe("tiny/mlm", settings).config.train
    rates = [rate_of(train, step) for step in range(30)]
    assert rates[:5] == pytest.approx([0.0006, 0.0012, 0.0018, 0.0024, 0.003])
    assert rates[5:20] == pytest.approx([0.003] * 15)
    assert rates[20:] == pytest.approx([0.003 * (1 - step / 10) for step in range(10)])
