"""Numbers that the loop logs: time and work since the last event, rows and tokens so far, use of the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import psutil
import torch

from xalign_ray.train.step import Totals

MB = 1e6


def host_metrics(device: torch.device) -> dict[str, float]:
    """The mean use of the CPUs since the last call (0 at the first), and the memory in use now."""
    memory = psutil.virtual_memory()
    found = {
        "system/cpu_utilization_percentage": psutil.cpu_percent(),
        "system/system_memory_usage_megabytes": memory.used / MB,
        "system/system_memory_usage_percentage": memory.percent,
    }
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        found |= {
            "system/gpu_memory_usage_megabytes": (total - free) / MB,
            "system/gpu_memory_usage_percentage": 100 * (1 - free / total),
        }
    return found


N = TypeVar("N", int, float)


def _added(before: Sequence[N], new: Sequence[N]) -> list[N]:
    """Item by item; there is nothing before the first step."""
    return [one + other for one, other in zip(before, new, strict=True)] if before else list(new)


@dataclass
class Spent:
    """Seconds, and what was done in them, since the last step event: a device may do a step while the next is given."""

    steps: int = 0
    seconds: float = 0.0
    waited: float = 0.0  # rank 0, for its rows
    tokens: int = 0
    flops: float = 0.0

    def add(self, totals: Totals, seconds: float) -> None:
        """One more step."""
        self.steps += 1
        self.seconds += seconds
        self.waited += totals.waits[0]
        self.tokens += totals.tokens
        self.flops += totals.flops


@dataclass
class Delivered:
    """What the feed has given since the start of the attempt, and how long each rank waited for it and for others."""

    rows: int = 0
    tokens: int = 0
    language_tokens: list[int] = field(default_factory=list)
    _steps: int = 0
    _seconds: float = 0.0
    _waits: list[float] = field(default_factory=list)
    _held: list[float] = field(default_factory=list)

    def add(self, totals: Totals, rows: int, seconds: float) -> None:
        """One more step."""
        self.rows += rows
        self.tokens += totals.tokens
        self.language_tokens = _added(self.language_tokens, totals.language_tokens)
        self._steps += 1
        self._seconds += seconds
        self._waits = _added(self._waits, totals.waits)
        self._held = _added(self._held, totals.held)

    def take_ms(self) -> tuple[list[float], list[float], float, int]:
        """Milliseconds that each rank waited for a step's rows, and for the others, and that a step took.

        Each is the mean of the steps since it was asked last, whose number is given too.
        """
        waits, held = ([round(one / self._steps * 1e3, 3) for one in given] for given in (self._waits, self._held))
        steps, step = self._steps, self._seconds / self._steps * 1e3
        self._steps, self._seconds, self._waits, self._held = 0, 0.0, [], []
        return waits, held, step, steps
