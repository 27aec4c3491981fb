"""Optimizers by the kind a recipe names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import nn
from torch.optim import AdamW as TorchAdamW
from torch.optim import Optimizer

from xalign_ray.config import choices


def adamw(module: nn.Module, options: choices.AdamW) -> Optimizer:
    """AdamW with decoupled decay, none on biases and LayerNorm (METHODS 1.5): those are all parameters of one axis."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": options.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return TorchAdamW(
        [group for group in groups if group["params"]],
        lr=options.peak_lr,
        betas=(options.beta1, options.beta2),
        eps=options.epsilon,
    )


OPTIMIZERS: Mapping[str, Callable[[nn.Module, choices.Optimizer], Optimizer]] = {"adamw": adamw}


def build_optimizer(module: nn.Module, options: choices.Optimizer) -> Optimizer:
    """The optimizer of a recipe over all trained parameters of a module."""
    return OPTIMIZERS[options.kind](module, options)
