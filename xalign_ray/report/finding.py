"""The finding of a report in one sentence: which encoder is best on the headline metric, and if that is decided."""

from __future__ import annotations

from dataclasses import dataclass

from xalign_ray.report.compare import Comparison, Record
from xalign_ray.report.frames import KEY
from xalign_ray.report.score_tables import percent, points
from xalign_ray.tasks.registry import METRICS
from xalign_ray.tasks.scores import ALL_LANGUAGES

_SEEN = "alignment_trained"  # what such metrics ask is what a loss trained: no finding where there is another


@dataclass(frozen=True)
class Finding:
    """What a report says first.

    Attributes:
        sentence: honest about what is not decided.
        key: the headline measurement as values of KEY, None where nothing has been scored.
        at_chance: titles of the other metrics on which no encoder is above chance.
    """

    sentence: str
    key: tuple[str, ...] | None = None
    at_chance: tuple[str, ...] = ()


def find(comparison: Comparison) -> Finding:
    """The finding on the headline metric.

    That is the first one of the table that most encoders have, where higher is better and not all are at chance; of
    those, transfer of a head that was fine-tuned on English comes first.
    """
    by_key: dict[tuple[str, ...], list[Record]] = {}
    for cell in comparison.records("task"):
        if METRICS[cell["metric"]].higher_is_better:
            by_key.setdefault(tuple(cell[name] for name in KEY), []).append(cell)
    if not by_key:
        return Finding("Nothing has been scored yet that could be compared; `xalign evaluate RUN` scores a run.")
    guessed = {key for key, cells in by_key.items() if all(cell["at_chance"] for cell in cells)}
    key = min(
        by_key, key=lambda key: (key[0].startswith(_SEEN), -len(by_key[key]), key in guessed, not _is_transfer(key))
    )
    others = dict.fromkeys(METRICS[other[0]].title for other in by_key if other in guessed and other != key)
    return Finding(_sentence(comparison, by_key[key], METRICS[key[0]].title), key, tuple(others))


def _sentence(comparison: Comparison, cells: list[Record], title: str) -> str:
    best, alone = max(cells, key=lambda cell: cell["mean"]), len(comparison.labels) == 1
    if all(cell["at_chance"] for cell in cells):
        who = best["label"] if alone else "Every encoder"
        return f"{who} is at chance on {title}: no more than guessing ({_scope(best)})."
    if alone:
        return f"{best['label']} reaches {_percent(best)} on {title}, {_scope(best)}{_chance(best)}."
    return _compare(comparison, cells, best, title)


def _is_transfer(key: tuple[str, ...]) -> bool:
    return METRICS[key[0]].of_tuned_head and not key[0].endswith("_supervised")


def _compare(comparison: Comparison, cells: list[Record], best: Record, title: str) -> str:
    others = [cell for cell in cells if cell["difference"] is not None]
    is_baseline = best["label"] == comparison.baseline
    compared = max(others, key=lambda cell: cell["mean"], default=None) if is_baseline else best
    score = f"{best['label']} scores highest on {title}, {_percent(best)}"
    if compared is None or compared["difference"] is None:
        return f"{score}, {_scope(best)}; there is nothing to compare it with."
    sign, other = (-1, compared["label"]) if is_baseline else (1, comparison.baseline)
    gap = sign * compared["difference"]
    apart = f"{points(gap).lstrip('+')} points above {other}"
    over = _over(compared["difference_languages"], compared["difference_seeds"], compared["languages"])
    if compared["low_95"] is None:
        return f"Undecided: {score}, {apart}, but {over} are too few for an interval."
    ends = sorted(sign * compared[end] for end in ("low_95", "high_95"))
    shown = f"the 95 % interval of the difference, [{', '.join(points(end).lstrip('+') for end in ends)}],"
    if ends[0] <= 0:
        return f"Undecided: {score}, {apart} over {over}, but {shown} includes zero."
    alone = "" if compared["difference_seeds"] != 1 else " and says nothing about other seeds"
    return f"{best['label']} is best on {title}: {_percent(best)}, {apart} over {over}; {shown} excludes zero{alone}."


def _over(languages: int, seeds: int, names: str) -> str:
    many = (
        "means over languages"
        if names == ALL_LANGUAGES
        else "one language"
        if languages == 1
        else f"{languages} languages"
    )
    return f"{many} and {'one seed' if seeds == 1 else f'{seeds} seeds' if seeds else 'no seed in common'}"


def _scope(cell: Record) -> str:
    return f"over {_over(len(cell['languages'].split()), cell['seeds'], cell['languages'])}"


def _percent(cell: Record) -> str:
    return f"{percent(cell['metric'], cell['mean'])} %"


def _chance(cell: Record) -> str:
    return "" if cell["chance"] is None else f"; chance is {100 * cell['chance']:.2g} %"
