"""The schedule and the optimizer groups, as pure functions of the recipe."""

from __future__ import annotations

import pytest
from torch import nn

from xalign_ray.config.training import AdamW
from xalign_ray.train.optimizers import build_optimizer, learning_rate


def test_the_rate_rises_to_the_peak_and_falls_linearly():
    rates = [learning_rate(step, 10, 4, 1.0) for step in range(10)]
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])


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
