"""Optimizers by the kind a recipe names, LAMB among them, and the learning rate of a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from xalign_ray.config import training
from xalign_ray.config.training import ScheduleConfig
from xalign_ray.private.torch import adam_directions, add_each, norms_of, scale_each

Moves = Mapping[nn.Parameter, tuple[tuple[str, ...], float]]
NO_PHASES: Moves = MappingProxyType({})


def learning_rate(schedule: ScheduleConfig, step: int, steps: int, peak: float) -> float:
    """Linear warm-up to the peak, the peak, then decay from it towards a part of it.

    Args:
        step: the step to take, counting from 0; at `warmup_steps` the peak is used first.
        steps: all steps of the run; the rate would be `min_lr_ratio * peak` at `step == steps`.
        peak: the highest rate.
    """
    warmup_steps, decay_steps = schedule.steps_of(steps), schedule.decay_of(steps)
    if step < warmup_steps:
        return peak * (step + 1) / (warmup_steps + 1)
    begin = warmup_steps if decay_steps is None else max(warmup_steps, steps - decay_steps)
    if step <= begin:
        return peak
    low = schedule.min_lr_ratio * peak
    if schedule.decay_type == "linear":
        return low + (peak - low) * (steps - step) / (steps - begin)
    done = (step - begin) / (steps - begin)
    left = 1 - math.sqrt(done) if schedule.decay_type == "1-sqrt" else (1 + math.cos(math.pi * done)) / 2
    return low + (peak - low) * left


@dataclass(frozen=True)
class Parts:
    """The slices of parameters that a rank's shard of a flat buffer holds.

    Attributes:
        tensors: how many tensors there are, on all ranks.
        here: for each slice, the number of its tensor and its place in the rank's shard.
    """

    tensors: int
    here: Sequence[tuple[int, slice]]


class Lamb(Optimizer):
    """You et al. 2020, algorithm 2, with bias correction and phi the identity.

    With Adam's m and v: r = m^ / (sqrt(v^) + eps) + decay * w, and w <- w - lr * |w| / |r| * r, where the ratio of the
    norms is 1 if one of them is 0. Norms are of whole tensors: `set_shards` names the parts that a rank holds.
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float, weight_decay: float
    ) -> None:
        """Groups may set `adapt: False`, whose tensors move by lr * r: biases and LayerNorm."""
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "adapt": True})
        self._parts: Mapping[torch.Tensor, Parts] = {}
        self._add_up: Callable[[torch.Tensor], object] = lambda squares: squares

    def set_shards(self, parts: Mapping[torch.Tensor, Parts], add_up: Callable[[torch.Tensor], object]) -> None:
        """Registers this rank's shards of the parameters, so that norms are summed over ranks.

        Args:
            parts: the slices in each flat tensor that is moved; the same number of them on all ranks.
            add_up: puts the sum over ranks into a tensor; called by all of them, once for each flat tensor.
        """
        self._parts, self._add_up = parts, add_up

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of every tensor that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            by_step: dict[float, list[torch.Tensor]] = {}  # a weight of a loss that joins later is behind
            for weight in group["params"]:
                if weight.grad is not None:
                    by_step.setdefault(self._count(weight), []).append(weight)
            for count, weights in by_step.items():
                self._move(weights, count, group)
        return loss

    def _count(self, weight: torch.Tensor) -> float:
        """Steps of a weight with this one; its state is there from now on."""
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros(())  # on the host, which reads it
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
        state["step"] += 1
        return float(state["step"])

    def _move(self, weights: list[torch.Tensor], count: float, group: dict[str, Any]) -> None:
        gradients = [cast(torch.Tensor, weight.grad) for weight in weights]
        means, squares = ([self.state[weight][name] for weight in weights] for name in ("exp_avg", "exp_avg_sq"))
        directions = adam_directions(means, squares, gradients, group["betas"], group["eps"], count)
        add_each(directions, weights, group["weight_decay"])
        if group["adapt"]:
            self._adapt(weights, directions)
        add_each(weights, directions, -group["lr"])

    def _adapt(self, weights: Sequence[torch.Tensor], directions: Sequence[torch.Tensor]) -> None:
        """Makes the direction of each tensor, in place, as long as the tensor is."""
        unsplit = [number for number, weight in enumerate(weights) if weight not in self._parts]
        if unsplit:
            norms = norms_of([*(weights[number] for number in unsplit), *(directions[number] for number in unsplit)])
            scale_each([directions[number] for number in unsplit], _ratios(*norms.view(2, -1)))
        for weight, direction in zip(weights, directions, strict=True):
            if weight in self._parts:
                self._adapt_parts(weight, direction, self._parts[weight])

    def _adapt_parts(self, weight: torch.Tensor, direction: torch.Tensor, held: Parts) -> None:
        """The same of a flat tensor, in which stretches of several lie."""
        numbers, pieces = [number for number, _ in held.here], [direction[at] for _, at in held.here]
        squares = weight.new_zeros(2, held.tensors)
        if pieces:
            norms = norms_of([*(weight[at] for _, at in held.here), *pieces])
            squares[:, numbers] = norms.view(2, -1).square()
        self._add_up(squares)
        ratios = _ratios(*squares.sqrt())
        if pieces:
            scale_each(pieces, ratios[numbers])


def _ratios(own: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Of norms, 1 where one of the two is 0."""
    return torch.where((own > 0) & (other > 0), own / other, torch.ones_like(own))


def build_optimizer(module: nn.Module, options: training.Optimizer, moves: Moves = NO_PHASES) -> Optimizer:
    """The optimizer of a recipe over all trained parameters of a module, in groups that move in the same phases.

    Biases and LayerNorm, of one axis, have groups of their own: without decay, and in LAMB without a trust ratio.

    Args:
        moves: how a parameter moves in each phase, and the factor of its rate, see `Trainable`; others always, by 1.
    """
    groups: dict[Any, dict[str, Any]] = {}
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for parameter in sorted(trained, key=lambda parameter: parameter.ndim <= 1):
        is_vector, moving = parameter.ndim <= 1, moves.get(parameter)
        decay = 0.0 if is_vector else options.weight_decay
        group = groups.setdefault((is_vector, moving), {"params": [], "weight_decay": decay})
        group["params"].append(parameter)
        if moving:
            group |= {"moves": moving[0], "rate": moving[1], "decay": decay}
        if options.kind == "lamb":
            group["adapt"] = not is_vector
    rates: Any = {"lr": options.learning_rate, "betas": (options.beta1, options.beta2), "eps": options.epsilon}
    if options.kind == "lamb":
        return Lamb(groups.values(), **rates, weight_decay=options.weight_decay)
    return AdamW([*groups.values()], **rates, fused=True)
