"""What is said of the runs of a report or a model card: caveats, how to read the numbers, what repetitions show."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from xalign_ray.artifacts import hash_value
from xalign_ray.report.log import read_steps
from xalign_ray.report.run import Run, columns_of
from xalign_ray.report.tables import PLUS_MINUS

_DEMO = (
    "These runs were trained on the embedded world: a small made-up set of languages to learn the tool by and to test "
    "it with. Its numbers are never a source of claims about a method."
)
_CHANCE = (
    "Scores are percent right. Chance is what guessing reaches on the same n questions. A score marked 'at chance' "
    "is not above chance by two standard errors of guessing, sqrt(p (1 - p) / n) with p = chance: it shows nothing."
)
_INTERVAL = (
    "[a, b] holds 95 % of the differences when languages and seeds are drawn anew, with replacement, the same ones for "
    "both. It is about other languages and seeds like these, and too narrow where there are few: it holds the truth in "
    "about 75 of 100 cases with three languages, 85 with five, 93 with fifteen. Below three languages and three seeds "
    "none is given."
)
_ONE_SEED = (
    "One seed of each recipe was run: another seed may turn a small difference round. Believe a difference when "
    "several seeds agree."
)
_SEEDS = (
    f"a {PLUS_MINUS} b is mean and standard deviation over seeds. A difference that is not there in every seed is not "
    "yet a finding."
)
_ALIGNMENT = (
    "Word translation on held-out pairs is the test: no training loss saw these words paired. On trained pairs it only "
    "says that the alignment loss was learned."
)
_COLLAPSE = (
    "Mean cosine of random words near 1 means that all embeddings have collapsed into one direction; word translation "
    "is then worth little."
)
_TOTALS = (
    "Total losses of recipes with different objectives cannot be compared. The alignment loss is minus a mean cosine, "
    "so it may be negative; masked-LM and held-out losses compare where the vocabulary is the same."
)


def caveats(runs: Sequence[Run]) -> list[str]:
    """What must be known before the first number is read."""
    lines = [_DEMO] if any(run.on_demo for run in runs) else []
    unfinished = dict.fromkeys(run.label for run in runs if not run.finished)
    return lines + ([f"Not finished yet: {', '.join(unfinished)}."] if unfinished else [])


def how_to_read(runs: Sequence[Run]) -> list[str]:
    """What a reader should know before believing a number, as far as it applies to these runs."""
    columns, metrics = columns_of(runs), {score.metric for run in runs for score in run.scores}
    alone = [label for label, own in columns.items() if len(own) == 1]
    seeds = f"{_SEEDS} One seed only: {', '.join(alone)}." if alone else _SEEDS
    if len(alone) == len(columns):
        seeds = _ONE_SEED if len(alone) > 1 else ""
    said = {
        _CHANCE: bool(metrics),
        seeds: bool(seeds),
        _INTERVAL: bool(metrics) and len(columns) > 1,
        _ALIGNMENT: bool(metrics & {"alignment_heldout", "alignment_trained"}),
        _COLLAPSE: "mean_cosine_random" in metrics,
        _TOTALS: any("dictionary_alignment" in str(run.config.get("objectives")) for run in runs),
    }
    return [line for line, applies in said.items() if applies]


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
