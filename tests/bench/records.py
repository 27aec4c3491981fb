"""One figure of the bench: what it is called, what it came to, what it must reach, and how it was measured."""

from __future__ import annotations

from typing import Any


def record(name: str, value: float, target: float | None, how: str, better: str = "higher") -> dict[str, Any]:
    """One record of bench.json; a target of None is a figure to report."""
    return {"name": name, "value": value, "target": target, "better": better, "how": how}
