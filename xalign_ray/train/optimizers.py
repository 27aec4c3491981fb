"""Optimizers by the kind a recipe names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.optim import AdamW as TorchAdamW
from torch.optim import Optimizer

from xalign_ray.config import optimizer
from xalign_ray.train.lamb import Lamb


def adamw(module: nn.Module, options: optimizer.AdamW) -> Optimizer:
    """AdamW with decoupled decay, none on biases and LayerNorm."""
    groups = _groups(module, {"weight_decay": options.weight_decay}, {"weight_decay": 0.0})
    betas = (options.beta1, options.beta2)
    return TorchAdamW(groups, lr=options.learning_rate, betas=betas, eps=options.epsilon, fused=True)


def lamb(module: nn.Module, options: optimizer.Lamb) -> Optimizer:
    """LAMB; biases and LayerNorm without decay and without a trust ratio."""
    groups = _groups(module, {"adapt": True}, {"weight_decay": 0.0, "adapt": False})
    betas = (options.beta1, options.beta2)
    return Lamb(groups, options.learning_rate, betas, options.epsilon, options.weight_decay)


def _groups(module: nn.Module, matrices: dict[str, Any], vectors: dict[str, Any]) -> list[dict[str, Any]]:
    """Trained parameters in two groups with options of their own; biases and LayerNorm are those of one axis."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], **matrices},
        {"params": [p for p in trained if p.ndim <= 1], **vectors},
    ]
    return [group for group in groups if group["params"]]


OPTIMIZERS: Mapping[str, Callable[[nn.Module, Any], Optimizer]] = {"adamw": adamw, "lamb": lamb}


def build_optimizer(module: nn.Module, options: optimizer.Optimizer) -> Optimizer:
    """The optimizer of a recipe over all trained parameters of a module."""
    return OPTIMIZERS[options.kind](module, options)
