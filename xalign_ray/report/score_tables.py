"""The tables of scores: a comparison, wide for a page and narrow for a terminal, and gaps seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import rich.table

from xalign_ray.report.compare import Comparison, Record, is_share
from xalign_ray.report.frames import KEY
from xalign_ray.report.table import NONE, Entry, Table, as_rich
from xalign_ray.tasks.registry import METRICS
from xalign_ray.tasks.scores import ALL_LANGUAGES

AT_CHANCE = "at chance"
PLUS_MINUS = "\u00b1"
_MAX_NAMED = 12  # languages that a group is followed by
_GROUPS = {
    "task": "Scores, mean over languages",
    "language": "Scores by language",
    "family": "Scores by language family",
    "size": "Scores by size of the language's Wikipedia",
    "dictionary": "Scores of languages with and without a dictionary",
}
_NOTES = {
    "size": "Groups are round(log2(size in MB)).",
    "dictionary": "A language has a dictionary where the recipe names one that it is a side of.",
}


def score_table(comparison: Comparison, by: str) -> Table:
    """One row a metric and group of languages, one column an encoder, with the difference below each score."""
    records, grouped, lines, last = comparison.records(by), by != "task", [], ""
    for title, group, cells in _grouped(records):
        found = {cell["label"]: cell for cell in cells}
        best = _best(cells)
        name = Entry(title, cells[0]["metric"])
        lines += [(name,)] if grouped and title != last else []
        lines.append(
            (
                Entry(group, "" if by == "language" else _named(cells)) if grouped else name,
                *(_score(found[label], label in best) if label in found else NONE for label in comparison.labels),
                _span(cells, "chance", lambda value: f"{100 * value:.2g}") or "-",
                Entry(_span(cells, "n", "{:,}".format), "" if grouped else _count_languages(cells)),
                _span(cells, "seeds", str, ", "),
            )
        )
        last = title
    header = (by if grouped else "", *comparison.labels, "chance", "n", "seeds")
    note = " ".join(["Percent; cosines as they are.", *_explain(records, comparison.baseline), _NOTES.get(by, "")])
    return Table(_GROUPS[by], header, lines, note.strip() if lines else "", link="comparison.csv")


def as_terminal_table(comparison: Comparison) -> rich.table.Table:
    """The first grouping, with a row an encoder below each metric and group: fits however many encoders there are."""
    by = comparison.by[0]
    records, lines, last = comparison.records(by), [], ""
    for title, group, cells in _grouped(records, short=True):
        chance = _span(cells, "chance", lambda value: f"{100 * value:.2g}")
        facts = (f"chance {chance}" if chance else "", f"n {_span(cells, 'n', '{:,}'.format)}", "")
        lines += [(title, "", "", "")] if by != "task" and title != last else []
        lines.append((title if by == "task" else f"  {group}", *facts))
        indent, last = " " * (2 if by == "task" else 4), title
        lines += [(indent + cell["label"], *_narrow(cell)) for cell in cells]
    said = f"; difference: points above {comparison.baseline}" if len(comparison.labels) > 1 else ""
    said += ", with 95 % intervals" if _any_interval(records) else ""
    header = ("", "percent", "difference" if len(comparison.labels) > 1 else "", "seeds")
    return as_rich(Table(f"{_GROUPS[by]}{said}", header, lines))


def gap_table(comparison: Comparison) -> Table | None:
    """One row a metric and column: mean gap, every seed's gap, in how many seeds the column is above the baseline."""
    lines, last = [], ""
    for title, _, cells in _grouped(comparison.records("task")) if "task" in comparison.by else ():
        base = next((cell for cell in cells if cell["label"] == comparison.baseline), None)
        for cell in cells:
            if base is None or cell["difference"] is None:
                continue
            gaps, guessed = cell["differences"], bool(cell["at_chance"] and base["at_chance"])
            lines.append(
                (
                    title if title != last else "",
                    cell["label"],
                    Entry(points(cell["difference"]), "both at chance" if guessed else "", quiet=guessed),
                    ", ".join(map(points, gaps.values())) or "no seed in common",
                    f"{sum(value > 0 for value in gaps.values())} of {len(gaps)}" if gaps else "-",
                )
            )
            last = title
    if not lines:
        return None
    header = ("", "recipe", "mean gap", "gap in each seed", "above in")
    note = "In points of percent. A seed is compared with the same seed of the baseline."
    return Table(f"Difference from {comparison.baseline}", header, lines, note, names=2)


def percent(metric: str, value: float) -> str:
    """A score as tables print it."""
    return f"{100 * value:.1f}" if is_share(metric) else f"{value:.2f}"


def points(gap: float) -> str:
    """A difference in points of percent, with its sign."""
    return f"{round(100 * gap, 1) + 0.0:+.1f}"  # adding zero makes -0.0 a plain zero


def interval(cell: Record) -> str:
    """The 95 % interval of a difference in points of percent, empty where there is none."""
    ends = [points(cell[end]).lstrip("+") for end in ("low_95", "high_95") if cell[end] is not None]
    return f"[{', '.join(ends)}]" if ends else ""


def _grouped(records: Iterable[Record], short: bool = False) -> list[tuple[str, str, list[Record]]]:
    """Title, group and cells of each row; what else tells a metric apart is in its title where it is there twice."""
    every = list(records)
    parts: dict[str, set[tuple[str, ...]]] = {}
    for one in every:
        parts.setdefault(one["metric"], set()).add(tuple(one[name] for name in KEY[1:]))
    found = []
    for (*_, group), cells in groupby(every, key=lambda one: (*(one[name] for name in KEY), one["group"])):
        rows = list(cells)
        metric = rows[0]["metric"]
        differing = [number for number, values in enumerate(zip(*parts[metric], strict=True)) if len(set(values)) > 1]
        own = ", ".join(rows[0][KEY[1 + number]] for number in differing)
        title = metric if short else METRICS[metric].title
        found.append((f"{title} ({own})" if own else title, group, rows))
    return found


def _score(cell: Record, best: bool) -> Entry:
    if cell["at_chance"]:
        return Entry(_mean(cell), AT_CHANCE, quiet=True)
    return Entry(_mean(cell), below=_difference(cell), best=best)


def _narrow(cell: Record) -> tuple[Entry | str, ...]:
    mean = Entry(percent(cell["metric"], cell["mean"]), AT_CHANCE, quiet=True) if cell["at_chance"] else _mean(cell)
    return mean, _difference(cell), str(cell["seeds"])


def _best(cells: Sequence[Record]) -> set[str]:
    """The labels of the highest score, none where there is nothing to choose from."""
    if len(cells) < 2 or not is_share(cells[0]["metric"]):
        return set()
    shown = {cell["label"]: percent(cell["metric"], cell["mean"]) for cell in cells}
    return {label for label, text in shown.items() if float(text) == max(map(float, shown.values()))}


def _mean(cell: Record) -> str:
    spread = cell["standard_deviation"]
    own = "" if spread is None else f" {PLUS_MINUS} {percent(cell['metric'], spread)}"
    return f"{percent(cell['metric'], cell['mean'])}{own}"


def _difference(cell: Record) -> str:
    return "" if cell["difference"] is None else f"{points(cell['difference'])} {interval(cell)}".strip()


def _languages(cells: Sequence[Record]) -> list[str]:
    return sorted({language for cell in cells for language in cell["languages"].split()})


def _named(cells: Sequence[Record]) -> str:
    named = _languages(cells)
    return ", ".join(named) if len(named) <= _MAX_NAMED else f"{len(named)} languages"


def _count_languages(cells: Sequence[Record]) -> str:
    """Over how many languages or pairs the mean is, and whether English itself is one of them."""
    same = set(_languages(cells)) - {ALL_LANGUAGES}
    return f"{len(same)} language{'s' * (len(same) > 1)}" + (", with en" if "en" in same else "") if same else ""


def _explain(records: Sequence[Record], baseline: str) -> list[str]:
    """What the notation means, as far as the table uses it."""
    lines = []
    if any(cell["standard_deviation"] is not None for cell in records):
        lines.append(f"{PLUS_MINUS} is the sample standard deviation over seeds.")
    if any(cell["difference"] is not None for cell in records):
        ends = ", with its 95 % interval" if _any_interval(records) else ""
        lines.append(f"Below: the difference from {baseline} in points{ends}.")
    if any(len({cell["languages"] for cell in cells}) > 1 for _, _, cells in _grouped(records)):
        lines.append("Not every score of a row is a mean over the same languages; differences are over common ones.")
    return lines


def _any_interval(records: Iterable[Record]) -> bool:
    return any(cell["low_95"] is not None for cell in records)


def _span(cells: Sequence[Record], name: str, show: Callable[..., str], between: str = "") -> str:
    """The values that the cells of a row have: one, or from the lowest to the highest."""
    values = [cell[name] for cell in cells if cell[name] is not None]
    if between:
        return show(values[0]) if len(set(values)) == 1 else between.join(map(show, values))
    ends = list(dict.fromkeys(map(show, sorted(set(values)))))
    return " to ".join(ends if len(ends) < 2 else (ends[0], ends[-1]))
