"""Says of runs that repeat another's recipe and seed whether they took its rows, and how far their losses are off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from xalign_ray.artifacts import hash_value
from xalign_ray.report.columns import Column, recipe_settings
from xalign_ray.report.log import TOTAL
from xalign_ray.report.run import Run
from xalign_ray.track.events import Event, stream_events


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
    steps, apart, widest, begun = 0, None, (0.0, 0), 0
    for one, two in _common_steps(first, other):
        if one["batch_hash"] != two["batch_hash"]:
            return f"took other rows than {first_name} from step {one['step']:,} on."
        gap = abs(one["metrics"][TOTAL] - two["metrics"][TOTAL])
        steps, begun = steps + 1, begun or one["step"]
        apart = one["step"] if gap and apart is None else apart
        widest = max(widest, (gap, one["step"]), key=lambda found: found[0])
    if not steps:
        return ""
    same = f"took the same rows as {first_name} at each of {steps:,} steps, and their total losses"
    if apart is None:
        return f"{same} are equal."
    equal = f" are equal before step {apart:,} and" if apart > begun else ""
    return f"{same}{equal} differ by at most {widest[0]:.1g}, at step {widest[1]:,}."


def _common_steps(first: Run, other: Run) -> Iterator[tuple[Event, Event]]:
    """The steps that both logs have, side by side; a log is only held where it is being read."""
    ours, theirs = _steps(first), _steps(other)
    one, two = next(ours, None), next(theirs, None)
    while one and two:
        if one["step"] == two["step"]:
            yield one, two
        behind = one["step"], two["step"]
        one = next(ours, None) if behind[0] <= behind[1] else one
        two = next(theirs, None) if behind[1] <= behind[0] else two


def _steps(run: Run) -> Iterator[Event]:
    """The steps whose rows are known; none from MLflow, which does not hold them."""
    if run.log.path is None or not run.log.path.is_file():
        return
    for event, survives in stream_events(run.log.path):
        if survives and event["event"] == "step" and "batch_hash" in event and event["metrics"][TOTAL] is not None:
            yield event


def _resumptions(run: Run) -> str:
    """Where it went on from a checkpoint, and where that was with another number of workers."""
    places: list[str] = []
    for before, now in pairwise(run.log.starts):
        if now["step"]:
            workers = (before.get("workers"), now.get("workers"))
            changed = f" (workers: {workers[0]}, then {workers[1]})" if workers[0] != workers[1] else ""
            places.append(f"after step {now['step']:,}{changed}")
    return f" It went on {', '.join(places)}." if places else ""
