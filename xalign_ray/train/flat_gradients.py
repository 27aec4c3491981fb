"""Gradients as flat tensors: a few operations for all weights in place of some for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from xalign_ray.private.deepspeed import FlatGroup
from xalign_ray.private.torch import copy_each, norms_of, scale_all
from xalign_ray.train.distributed import Workers

NORM_OF = 1 << 20  # numbers whose squares are summed together: more would lose digits


@torch.no_grad()
def average_gradients(weights: Iterable[nn.Parameter], workers: Workers, dtype: torch.dtype) -> None:
    """Puts the mean over ranks in place of each gradient, in one reduction of that type."""
    trained = [weight for weight in weights if weight.requires_grad]
    gradients = [_gradient(weight) for weight in trained]
    sizes = [weight.numel() for weight in trained]
    flat = torch.empty(sum(sizes), dtype=dtype, device=trained[0].device)
    sent = [part.view_as(weight) for weight, part in zip(trained, flat.split(sizes), strict=True)]
    copy_each(sent, gradients)
    workers.add_up(flat.div_(workers.size))
    copy_each(gradients, sent)
    for weight, mean in zip(trained, gradients, strict=True):
        weight.grad = mean


def _gradient(weight: nn.Parameter) -> Tensor:
    """Zeros where this rank's rows have not used the weight: another's may have."""
    return torch.zeros_like(weight) if weight.grad is None else weight.grad


class FlatGradients:
    """Stages 1 and 2: sums micro-steps in fp32, reduces in the model's precision, clips, moves the rank's weights.

    Nothing in it waits for the device. Where the norm is not finite the weights are not either: the loop, which reads
    it, stops before they are saved.
    """

    def __init__(self, optimizer: Optimizer, workers: Workers, micro_steps: int, clipping: float) -> None:
        """Nothing is taken yet; `groups` must be set first.

        Args:
            clipping: the largest norm; 0 is no clipping.
        """
        self.groups: Sequence[FlatGroup] = ()
        self.norm = torch.zeros(())
        self._optimizer = optimizer
        self._workers = workers
        self._micro_steps = micro_steps
        self._clipping = clipping
        self._sums: list[Tensor] = []

    @torch.no_grad()
    def add(self) -> None:
        """Takes the gradients of one micro-step."""
        flats = [self._flat(group) for group in self.groups]
        if self._micro_steps == 1:
            self._sums = flats
        elif not self._sums:
            self._sums = [flat.float() for flat in flats]
        else:
            for total, flat in zip(self._sums, flats, strict=True):
                total.add_(flat)

    @torch.no_grad()
    def step(self) -> None:
        """Moves the weights by the sums; `norm` is that of the whole gradient before clipping, on the device."""
        gradients, self._sums = self._sums, []
        gradients = [
            self._reduced(gradient.to(group.flat.dtype)) for gradient, group in zip(gradients, self.groups, strict=True)
        ]
        if gradients[0].dtype != torch.float32:
            half, gradients = gradients, [torch.empty_like(group.master) for group in self.groups]
            copy_each(gradients, half)
        self.norm = self._norm(gradients)
        if self._clipping:
            scale_all(gradients, (self._clipping / (self.norm + 1e-6)).clamp(max=1.0))
        for group, gradient in zip(self.groups, gradients, strict=True):
            group.master.grad = gradient
        self._optimizer.step()
        copy_each([group.part for group in self.groups], [group.master for group in self.groups])
        for group in self.groups:
            group.master.grad = None
            self._workers.join_parts(group.flat, group.part)

    def _flat(self, group: FlatGroup) -> Tensor:
        """The gradients of a group concatenated, as long as its flat weights; the weights' own are freed."""
        gradients = [_gradient(weight) for weight in group.weights]
        padding = group.flat.numel() - sum(gradient.numel() for gradient in gradients)
        flat = torch.cat([*(gradient.flatten() for gradient in gradients), group.flat.new_zeros(padding)])
        for weight in group.weights:
            weight.grad = None
        return flat

    def _reduced(self, flat: Tensor) -> Tensor:
        """The rank's stretch of the mean over ranks."""
        return self._workers.sum_of_part(flat.div_(self._workers.size) if self._workers.size > 1 else flat)

    def _norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """The L2 norm over all ranks' stretches."""
        norms = norms_of([piece for gradient in gradients for piece in gradient.split(NORM_OF)])
        squares = torch.dot(norms, norms)
        return (self._workers.add_up(squares) if self._workers.size > 1 else squares).sqrt()
