"""LAMB against an independent numpy reference over several steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from xalign_ray.config.training import Lamb
from xalign_ray.train.optimizers import build_optimizer


def reference(weights, gradients, settings):
    """The weights after each step, float64; matrices are adapted and decayed, vectors are not."""
    w = {name: value.copy() for name, value in weights.items()}
    m, v = ({name: np.zeros_like(value) for name, value in w.items()} for _ in range(2))
    for t, step in enumerate(gradients, start=1):
        for name, g in step.items():
            m[name] = settings.beta1 * m[name] + (1 - settings.beta1) * g
            v[name] = settings.beta2 * v[name] + (1 - settings.beta2) * g * g
            hat_m, hat_v = m[name] / (1 - settings.beta1**t), v[name] / (1 - settings.beta2**t)
            r = hat_m / (np.sqrt(hat_v) + settings.epsilon)
            ratio = 1.0
            if w[name].ndim > 1:
                r = r + settings.weight_decay * w[name]
                lengths = np.sqrt((w[name] ** 2).sum()), np.sqrt((r**2).sum())
                ratio = lengths[0] / lengths[1] if min(lengths) > 0 else 1.0
            w[name] = w[name] - settings.learning_rate * ratio * r
        yield {name: value.copy() for name, value in w.items()}


@pytest.mark.parametrize(
    "settings", [Lamb(), Lamb(learning_rate=0.05, beta1=0.8, beta2=0.95, epsilon=0.1, weight_decay=0.3)]
)
def test_lamb_equals_the_numpy_reference_over_steps(settings):
    random = np.random.default_rng(0)
    module = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3), nn.Embedding(5, 2))
    with torch.no_grad():
        module[2].weight.zero_()  # a tensor of norm 0 moves by the plain direction
    weights = {name: p.detach().numpy().astype(np.float64) for name, p in module.named_parameters()}
    gradients = [{name: random.normal(size=value.shape) for name, value in weights.items()} for _ in range(7)]
    optimizer = build_optimizer(module, settings)
    for given, expected in zip(gradients, reference(weights, gradients, settings), strict=True):
        for name, parameter in module.named_parameters():
            parameter.grad = torch.from_numpy(given[name]).float()
        optimizer.step()
        for name, parameter in module.named_parameters():
            np.testing.assert_allclose(parameter.detach(), expected[name], rtol=2e-5, atol=2e-6, err_msg=name)


def test_a_parameter_without_a_gradient_stays():
    module = nn.Linear(2, 2)
    before = module.weight.detach().clone()
    module.bias.grad = torch.ones(2)
    build_optimizer(module, Lamb()).step()
    assert torch.equal(module.weight, before)
