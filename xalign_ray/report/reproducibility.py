"""Says of runs that repeat another's recipe and seed whether they took its rows, and how far their losses are off."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from xalign_ray.artifacts import hash_value
from xalign_ray.report.columns import Column, recipe_settings
from xalign_ray.report.curves import TOTAL
from xalign_ray.report.run import Run


def reproducibility_notes(columns: Sequence[Column]) -> list[str]:
    """A sentence for each run whose recipe and seed an earlier one has, along the steps that both took."""
    firsts: dict[tuple[str, int | None], tuple[str, Run]] = {}
    lines: list[str] = []
    for column in columns:
        for run in column.runs:
            name = column.label if len(column.runs) == 1 else f"{column.label}, seed {run.seed}"
            key = (hash_value(recipe_settings(run.config)), run.seed)
            first_name, first = firsts.setdefault(key, (name, run))
            if first is not run and (said := _compare(first, run, first_name)):
                lines.append(f"{name} {said}{_resumptions(run)}")
    return lines


def _compare(first: Run, other: Run, first_name: str) -> str:
    rows, other_rows = _rows(first), _rows(other)
    steps = sorted(rows.keys() & other_rows.keys())
    if not steps:
        return ""
    if strange := next((step for step in steps if rows[step] != other_rows[step]), None):
        return f"took other rows than {first_name} from step {strange:,} on."
    losses, other_losses = _losses(first), _losses(other)
    gaps = {step: abs(losses[step] - other_losses[step]) for step in steps}
    same = f"took the same rows as {first_name} at each of {len(steps):,} steps, and their total losses"
    apart = next((step for step in steps if gaps[step]), None)
    if apart is None:
        return f"{same} are equal."
    widest = max(steps, key=lambda step: gaps[step])
    equal = f" are equal before step {apart:,} and" if apart > steps[0] else ""
    return f"{same}{equal} differ by at most {gaps[widest]:.1g}, at step {widest:,}."


def _rows(run: Run) -> dict[int, int]:
    """The hash of each step's rows; none from MLflow, which does not hold them."""
    steps = (event for event in run.events if event["event"] == "step" and "batch_hash" in event)
    return {event["step"]: event["batch_hash"] for event in steps if event["metrics"][TOTAL] is not None}


def _losses(run: Run) -> dict[int, float]:
    return {event["step"]: event["metrics"][TOTAL] for event in run.events if event["event"] == "step"}


def _resumptions(run: Run) -> str:
    """Where it went on from a checkpoint, and where that was with another number of workers."""
    starts = [event for event in run.events if event["event"] == "start"]
    places: list[str] = []
    for before, now in pairwise(starts):
        if now["step"]:
            workers = (before.get("workers"), now.get("workers"))
            changed = f" (workers: {workers[0]}, then {workers[1]})" if workers[0] != workers[1] else ""
            places.append(f"after step {now['step']:,}{changed}")
    return f" It went on {', '.join(places)}." if places else ""
