"""Finding of a report: the sentence that its page opens with."""

from __future__ import annotations

import re
from collections.abc import Sequence

from xalign_ray.results.compare import Comparison, Record
from xalign_ray.results.difference import NEAR_ZERO, ONE_RUN
from xalign_ray.results.run import Run
from xalign_ray.results.sentences import MAX_WORDS, Finding, Key, few
from xalign_ray.results.tables import percent, points
from xalign_ray.tasks.registry import METRICS
from xalign_ray.tasks.scores import ALL_LANGUAGES

_SEEN = "alignment_trained"  # a loss trained on this measure: no finding where there is another


def find(comparison: Comparison, declared: str | None = None) -> Finding:
    """The finding on the headline metric.

    That is the first one of the table that most encoders have, where higher is better and not all are at chance; of
    those, a metric that the study has `declared` comes first, then transfer of a head that was fine-tuned on English.
    """
    rows = {cells[0]["key"]: cells for cells in comparison.rows("task")}
    by_key = {key: cells for key, cells in rows.items() if METRICS[key[0]].higher_is_better}
    if not by_key:
        return Finding("Nothing has been scored yet that could be compared.", "`xalign evaluate RUN` scores a run.")
    guessed = {key for key, cells in by_key.items() if all(cell["at_chance"] for cell in cells)}

    def rank(key: Key) -> tuple[bool, int, bool, bool, bool]:
        is_transfer = METRICS[key[0]].of_tuned_head and not key[0].endswith("_supervised")
        return key[0].startswith(_SEEN), -len(by_key[key]), key in guessed, key[0] != declared, not is_transfer

    first = min(by_key, key=rank)
    others = dict.fromkeys(by_key[key][0]["title"] for key in by_key if key in guessed and key != first)
    first_cells, cells = by_key[first], _alike(comparison, by_key[first])
    brief, detail = _judge(comparison, cells, first_cells[0]["title"])
    if len(brief.split()) > MAX_WORDS:
        brief, detail = _judge(comparison, cells, re.split(r"[(,]", first_cells[0]["title"])[0].strip())
    if apart := [cell["label"] for cell in first_cells if cell not in cells]:
        detail += f" Left out, with scores in other languages: {few(apart)}."
    if holes := {cell["label"]: cell["left_out"] for cell in cells if cell["left_out"]}:
        count = sum(holes.values())
        detail += f" Not every seed has every language: {count:,} scores of {few([*holes])} are in no mean."
    return Finding(brief, detail, first, tuple(others))


def declared_metric(runs: Sequence[Run]) -> str | None:
    """The metric by which the runs' one study chooses its rates, declared before anything was scored."""
    metrics = {run.study.get("rates", {}).get("metric") if run.study else None for run in runs}
    return metrics.pop() if len(metrics) == 1 else None


def _alike(comparison: Comparison, cells: Sequence[Record]) -> list[Record]:
    """Those over the baseline's languages, or the first one's: means over others may be higher for being easier.

    Where there is none but the baseline, those that have languages in common with it, which count by their difference.
    """
    base = next((cell for cell in cells if cell["label"] == comparison.baseline), cells[0])
    alike = [cell for cell in cells if cell["languages"] == base["languages"]]
    return alike if len(alike) > 1 else [cell for cell in cells if cell is base or cell["difference"] is not None]


def _best(cells: Sequence[Record]) -> Record:
    """The highest mean, or over several sets of languages the highest difference from the baseline."""
    alike = len({cell["languages"] for cell in cells}) == 1
    return max(cells, key=lambda cell: cell["mean"] if alike else cell["difference"] or 0.0)


def _judge(comparison: Comparison, cells: Sequence[Record], title: str) -> tuple[str, str]:
    """Who is best and by how much, or that it is not decided; and the languages, seeds and interval of that.

    The best is compared with the baseline; where the best is the baseline, with the best of the rest.
    """
    best = compared = _best(cells)
    sign, other = 1, comparison.baseline
    if best["label"] == comparison.baseline:
        compared = _best([cell for cell in cells if cell["difference"] is not None] or [best])
        sign, other = -1, compared["label"]
    name, reached = best["label"], f"{percent(best['metric'], best['mean'])} %"
    scope = _over(len(best["languages"].split()), best["seeds"], best["languages"])
    if all(cell["at_chance"] for cell in cells):
        who = name if len(comparison.labels) == 1 else "Every encoder"
        return f"{who} is at chance on {title}.", f"No more than guessing, over {scope}."
    if compared["difference"] is None:
        chance = "" if best["chance"] is None else f"; chance is {100 * best['chance']:.2g} %"
        return f"{name} reaches {reached} on {title}.", f"Over {scope}{chance}."
    gap, why = sign * compared["difference"], compared["undecided"]
    apart, shown = f"{points(gap).lstrip('+')} points above {other}", f"{name} reaches {reached}."
    if why == NEAR_ZERO:
        brief = f"{name} and {other} differ by at most 1 point on {title}."
        shown = f"{name} reaches {reached}, {apart}."
    elif why == ONE_RUN and gap > 0:
        brief, shown = f"Ahead in this one run on {title}: {name}, {reached}, {apart}.", ""
    elif why or gap < 0:
        brief = f"Undecided on {title}: {name} is {apart}{': ' * bool(why)}{why}."
    else:
        brief, shown = f"{name} is best on {title}: {reached}, {apart}.", ""
    seeds, of = compared["difference_seeds"], ""
    if not seeds and compared["fewest_seeds"] == 1:  # such as a released encoder's
        seeds, of = compared["seeds"], f" of {compared['label']}"
    detail = f"{shown} Over {_over(compared['difference_languages'], seeds, compared['languages'])}{of}".strip()
    if compared["low_95"] is None:
        return brief, f"{detail}: no interval."
    ends = sorted(sign * compared[end] for end in ("low_95", "high_95"))
    says = "includes zero" if ends[0] <= 0 <= ends[1] else "excludes zero"
    if why == NEAR_ZERO:
        says = "lies within 1 point of zero"
    elif why == ONE_RUN:
        says = "is over languages"
    of_other = f" of {compared['baseline']}" * (compared["seeds"] > 1 and not compared["difference_seeds"])
    lacking = [f"seeds{of_other}"] * (compared["fewest_seeds"] == 1)
    lacking += ["languages"] * (compared["difference_languages"] == 1)
    says += f" and says nothing about other {' or '.join(lacking)}" if lacking else ""
    interval = ", ".join(points(end).lstrip("+") for end in ends)
    detail += f"; the 95 % interval of the difference, [{interval}], {says}."
    rest = [cell for cell in cells if cell["label"] not in (name, other)]
    if rest and not why and gap > 0:
        second = _best(rest)
        score = f"{second['label']} ({percent(second['metric'], second['mean'])} %)"
        detail += (
            f" The interval allows for {compared['comparisons']} comparisons. The next best, {score}, was not compared "
            f"with {name}."
        )
    return brief, detail


def _over(languages: int, seeds: int, names: str) -> str:
    many = f"{languages} languages" if languages > 1 else "one language"
    many = "means over languages" if names == ALL_LANGUAGES else many
    return f"{many} and {'one seed' if seeds == 1 else f'{seeds} seeds' if seeds else 'no seed in common'}"
