"""Which rows share a batch: units stay whole, those of like length go together, in another order every epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

Integers = NDArray[np.int64]

POOL_BATCHES = 32  # inside so many batches' worth of shuffled units, those of like length go together


class LengthPools:
    """A batch sampler: an epoch's forward passes, each a list of rows; as many make a step as `passes` says.

    Half the padding of a plain shuffle, or less. A last smaller step ends the epoch. `units` has the unit of each
    row (rows of a unit stand together), `lengths` its pieces; `step` and `forward` are units of a step and of a pass.
    """

    def __init__(self, units: Integers, lengths: Integers, step: int, forward: int, seed: int) -> None:
        starts = np.flatnonzero(np.diff(units, prepend=-1))
        self._starts, self._ends = starts, np.append(starts[1:], len(units))
        self._longest = np.maximum.reduceat(lengths, starts)
        self._step, self._forward = step, min(forward, step)
        self._order = torch.Generator().manual_seed(seed)
        self.passes = math.ceil(step / self._forward)

    def __len__(self) -> int:
        whole, rest = divmod(len(self._starts), self._step)
        return whole * self.passes + math.ceil(rest / self._forward)

    def __iter__(self) -> Iterator[list[int]]:
        steps = []
        for pool in torch.randperm(len(self._starts), generator=self._order).split(POOL_BATCHES * self._step):
            ranked = pool.numpy()[np.argsort(self._longest[pool.numpy()], kind="stable")]
            steps += [ranked[begin : begin + self._step] for begin in range(0, len(ranked), self._step)]
        whole = len(self._starts) // self._step
        for place in [*torch.randperm(whole, generator=self._order).tolist(), *range(whole, len(steps))]:
            passes = self.passes if place < whole else math.ceil(len(steps[place]) / self._forward)
            for units in np.array_split(steps[place], passes):
                yield [row for unit in units for row in range(self._starts[unit], self._ends[unit])]
