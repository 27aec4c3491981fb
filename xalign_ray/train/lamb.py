"""LAMB: Adam's direction, with decoupled decay, as long as the tensor that it moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer


class Lamb(Optimizer):
    """You et al. 2020, algorithm 2, with bias correction and phi the identity.

    With Adam's m and v: r = m^ / (sqrt(v^) + eps) + decay * w, and w <- w - lr * |w| / |r| * r, where the ratio of the
    norms is 1 if one of them is 0. Norms are those of whole tensors, so it is wrong where a rank holds a part of one.
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float, weight_decay: float
    ) -> None:
        """Groups may set `adapt: False`, whose tensors move by lr * r: biases and LayerNorm."""
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "adapt": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of every tensor that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._move(weight, group)
        return loss

    def _move(self, weight: torch.Tensor, group: dict[str, Any]) -> None:
        direction = self._adam(weight, group).add_(weight, alpha=group["weight_decay"])
        rate = group["lr"]
        if group["adapt"]:
            own, other = weight.norm(), direction.norm()
            rate = rate * torch.where((own > 0) & (other > 0), own / other, torch.ones_like(own))
        weight.sub_(direction * rate)

    def _adam(self, weight: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        """m^ / (sqrt(v^) + eps) after one more gradient."""
        state, (beta1, beta2) = self.state[weight], group["betas"]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
        state["step"] += 1
        count = float(state["step"])
        state["exp_avg"].lerp_(weight.grad, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(weight.grad, weight.grad, value=1 - beta2)
        spread = (state["exp_avg_sq"] / (1 - beta2**count)).sqrt_().add_(group["eps"])
        return state["exp_avg"] / (1 - beta1**count) / spread
