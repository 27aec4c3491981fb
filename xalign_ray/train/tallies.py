"""What the loop adds up over steps until an event says it: time and work since the last step event, rows and tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from xalign_ray.train.step import Totals

N = TypeVar("N", int, float)


def _added(before: Sequence[N], new: Sequence[N]) -> list[N]:
    """Item by item; there is nothing before the first step."""
    return [one + other for one, other in zip(before, new, strict=True)] if before else list(new)


@dataclass
class Spent:
    """Seconds, and what was done in them, since the last step event: a device may do a step while the next is given."""

    steps: int = 0
    seconds: float = 0.0
    tokens: int = 0
    flops: float = 0.0
    waits: list[float] = field(default_factory=list)  # of each rank

    def add(self, totals: Totals, seconds: float) -> None:
        """One more step."""
        self.steps += 1
        self.seconds += seconds
        self.waits = _added(self.waits, totals.waits)
        self.tokens += totals.tokens
        self.flops += totals.flops


@dataclass
class Delivered:
    """What the feed has given since the start of the attempt."""

    rows: int = 0
    tokens: int = 0
    language_tokens: list[int] = field(default_factory=list)

    def add(self, totals: Totals, rows: int) -> None:
        """One more step."""
        self.rows += rows
        self.tokens += totals.tokens
        self.language_tokens = _added(self.language_tokens, totals.language_tokens)
