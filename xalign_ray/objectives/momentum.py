"""What momentum contrast remembers between steps, in fp32: a running average of the encoder and a queue of keys."""

from __future__ import annotations

import copy
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

_QUEUE = 0x6D6F6331  # this use of the run's seed: the random queue


class RunningAverage(nn.Module):
    """A copy of a module that follows it slowly, in fp32 and without gradient.

    Its weights are buffers: the optimizer, clipping and DeepSpeed's casts to half precision, in which an average with a
    momentum of .999 would stop moving, pass them by; checkpoints do not.
    """

    def __init__(self, live: nn.ModuleDict, momentum: float, dropout: bool) -> None:
        super().__init__()
        self.tower = copy.deepcopy(live).float()
        self.momentum = momentum
        self.dropout = dropout
        kept: dict[nn.Parameter, Tensor] = {}  # tied weights stay tied
        for module in self.tower.modules():
            for name, weight in list(module.named_parameters(recurse=False, remove_duplicate=False)):
                delattr(module, name)
                module.register_buffer(name, kept.setdefault(weight, weight.detach()))

    def follow(self, live: nn.Module) -> None:
        """One step of the average towards the whole weights of the module that it is a copy of."""
        weights = dict(live.named_parameters(remove_duplicate=False))
        for name, own in self.tower.named_buffers():
            if name in weights:
                own.lerp_(weights[name].detach().float(), 1 - self.momentum)

    def train(self, mode: bool = True) -> RunningAverage:
        """Training mode is dropout; without it the copy stays in evaluation mode."""
        return cast(RunningAverage, super().train(mode and self.dropout))


class KeyQueue(nn.Module):
    """The last K keys, each with the hash of its pivot sentence; the oldest gives way to the newest.

    Attributes:
        keys: [K, width]. hashes: int64 [K]; 0, which is no sentence's, where no key has come yet.
        entered: keys since the first step.
    """

    keys: Tensor
    hashes: Tensor
    entered: Tensor

    def __init__(self, size: int, width: int, seed: int | None) -> None:
        """Random unit vectors, the same on every rank for a seed, or zeros without one."""
        super().__init__()
        self.register_buffer(
            "keys", torch.zeros(size, width) if seed is None else _random_directions(size, width, seed)
        )
        self.register_buffer("hashes", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("entered", torch.zeros((), dtype=torch.int64))

    @property
    def is_full(self) -> Tensor:
        """Whether all keys are of real sentences."""
        return self.entered >= len(self.keys)

    def push(self, keys: Tensor, hashes: Tensor) -> None:
        """Lets n keys in, wherever the last ones ended; of more than K the last K stay."""
        size = len(self.keys)
        places = (self.entered + torch.arange(len(keys), device=keys.device))[-size:] % size
        self.keys[places] = keys[-size:]
        self.hashes[places] = hashes[-size:]
        self.entered += len(keys)


def _random_directions(size: int, width: int, seed: int) -> Tensor:
    random = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, _QUEUE]).generate_state(1)[0]))
    return F.normalize(torch.randn(size, width, generator=random), dim=1)
