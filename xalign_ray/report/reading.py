"""What is said of the runs of a report or a model card: caveats, how to read the numbers, what repetitions show."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from xalign_ray.artifacts import hash_value
from xalign_ray.report.log import read_steps
from xalign_ray.report.run import Run, columns_of
from xalign_ray.report.templates import ENVIRONMENT

_DEMO = (
    "These runs were trained on the embedded world: a small made-up set of languages to learn the tool by and to test "
    "it with. Its numbers are never a source of claims about a method."
)


def caveats(runs: Sequence[Run]) -> list[str]:
    """What must be known before the first number is read."""
    lines = [_DEMO] if any(run.on_demo for run in runs) else []
    unfinished = dict.fromkeys(run.label for run in runs if not run.finished)
    return lines + ([f"Not finished yet: {', '.join(unfinished)}."] if unfinished else [])


def how_to_read(runs: Sequence[Run]) -> list[str]:
    """What a reader should know before believing a number, as far as it applies to these runs."""
    columns = columns_of(runs)
    text = ENVIRONMENT.get_template("reading.md").render(
        scored={score.metric for run in runs for score in run.scores},
        columns=len(columns),
        single=[label for label, own in columns.items() if len(own) == 1],
        aligned=any("dictionary_alignment" in str(run.config.get("objectives")) for run in runs),
    )
    return text.splitlines()


def repetitions(runs: Sequence[Run]) -> list[str]:
    """A sentence for each run whose recipe and seed an earlier one has, along the steps that both took."""
    columns = columns_of(runs)
    firsts: dict[tuple[str, int | None], Run] = {}
    lines = []
    for run in runs:
        first = firsts.setdefault((hash_value(run.settings), run.seed), run)
        names = [one.label if len(columns[one.label]) == 1 else f"{one.label}, seed {one.seed}" for one in (first, run)]
        if first is not run and (said := _compare(first, run, names[0])):
            lines.append(f"{names[1]} {said}{_resumptions(run)}")
    return lines


def _compare(first: Run, other: Run, name: str) -> str:
    both = read_steps(first.log).merge(read_steps(other.log), on="step", suffixes=("", "_other"))
    if not len(both):
        return ""
    if len(strange := both[both.batch_hash != both.batch_hash_other]):
        return f"took other rows than {name} from step {strange.step.iloc[0]:,} on."
    gaps = (both.loss - both.loss_other).abs().set_axis(both.step)
    same = f"took the same rows as {name} at each of {len(both):,} steps, and their total losses"
    if not gaps.any():
        return f"{same} are equal."
    apart = gaps[gaps > 0].index[0]
    equal = f" are equal before step {apart:,} and" if apart > gaps.index[0] else ""
    return f"{same}{equal} differ by at most {gaps.max():.1g}, at step {gaps.idxmax():,}."


def _resumptions(run: Run) -> str:
    """Where it went on from a checkpoint, and where that was with another number of workers."""
    places: list[str] = []
    for before, now in pairwise(run.log.starts):
        if now["step"]:
            workers = (before.get("workers"), now.get("workers"))
            changed = f" (workers: {workers[0]}, then {workers[1]})" if workers[0] != workers[1] else ""
            places.append(f"after step {now['step']:,}{changed}")
    return f" It went on {', '.join(places)}." if places else ""
