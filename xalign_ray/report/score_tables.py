"""The tables of scores: a comparison, wide for a page and narrow for a terminal, and gaps seed by seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import rich.table

from xalign_ray.report.compare import Comparison, Difference, GroupCell, Row, is_share
from xalign_ray.report.numbers import Cell, Gap, Key
from xalign_ray.report.table import Entry, Table, as_rich
from xalign_ray.tasks.metrics import METRICS
from xalign_ray.tasks.scores import ALL_LANGUAGES

_UNIT = "Percent; cosines as they are."
_ABSENT = Entry("-", quiet=True)
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
    rows = comparison.groupings[by]
    keys = list(dict.fromkeys(row.key for row in rows))
    grouped = by != "task"
    lines = [
        (
            *_names(row, keys, by, first=number == 0 or rows[number - 1].key != row.key),
            *(_score_entry(row.key, row.cells.get(label)) for label in comparison.labels),
            _chances(row) or "-",
            Entry(_sizes(row), "" if grouped else _count_languages(row)),
            _span((str(len(cell.cell.values)) for cell in row.cells.values()), ", "),
        )
        for number, row in enumerate(rows)
    ]
    header = ("", *([by] if grouped else []), *comparison.labels, "chance", "n", "seeds")
    note = " ".join([_UNIT, *_explain(comparison, rows), *([_NOTES[by]] if by in _NOTES else [])])
    return Table(_GROUPS[by], header, tuple(lines), note if lines else "", names=1 + grouped)


def as_terminal_table(comparison: Comparison) -> rich.table.Table:
    """The first grouping, with a row an encoder below each metric and group: fits however many encoders there are."""
    return as_rich(narrow_table(comparison, next(iter(comparison.groupings))))


def narrow_table(comparison: Comparison, by: str) -> Table:
    """What `score_table` says, in few columns; chance and n stand above the scores that they belong to."""
    rows = comparison.groupings[by]
    keys = list(dict.fromkeys(row.key for row in rows))
    lines = []
    for number, row in enumerate(rows):
        chance = _chances(row)
        facts = (f"chance {chance}" if chance else "", f"n {_sizes(row)}", "")
        title = title_of(row.key, keys, short=True)
        if by == "task":
            lines.append((title, *facts))
        else:
            lines += [(title, "", "", "")] if number == 0 or rows[number - 1].key != row.key else []
            lines.append((f"  {row.group}", *facts))
        indent = " " * (2 if by == "task" else 4)
        lines += [(indent + label, *_narrow_entries(row.key, found)) for label, found in row.cells.items()]
    compared = len(comparison.labels) > 1
    said = f"; difference: points above {comparison.baseline}" if compared else ""
    said += ", with 95 % intervals" if _any_interval(rows) else ""
    header = ("", "percent", "difference" if compared else "", "seeds")
    return Table(f"{_GROUPS[by]}{said}", header, tuple(lines))


def _narrow_entries(key: Key, found: GroupCell) -> tuple[Entry | str, ...]:
    cell = found.cell
    mean = Entry(_number(key, cell.mean), AT_CHANCE, quiet=True) if cell.at_chance else _score_text(key, cell)
    return mean, _points_and_interval(found.difference) if found.difference else "", str(len(cell.values))


def gap_table(gaps: Sequence[Gap], baseline: str) -> Table:
    """One row a metric and column: mean gap, every seed's gap, in how many seeds the column is above the baseline."""
    keys = list(dict.fromkeys(gap.key for gap in gaps))
    first = {key: next(gap for gap in gaps if gap.key == key) for key in keys}
    rows = [
        (
            title_of(gap.key, keys) if gap is first[gap.key] else "",
            gap.label,
            Entry(_points(gap.mean), "both at chance" if gap.both_at_chance else "", quiet=gap.both_at_chance),
            ", ".join(map(_points, gap.by_seed.values())) or "no seed in common",
            f"{sum(value > 0 for value in gap.by_seed.values())} of {len(gap.by_seed)}" if gap.by_seed else "-",
        )
        for gap in gaps
    ]
    header = ("", "recipe", "mean gap", "gap in each seed", "above in")
    note = "In points of percent. A seed is compared with the same seed of the baseline."
    return Table(f"Difference from {baseline}", header, tuple(rows), note, names=2)


def title_of(key: Key, among: Iterable[Key], short: bool = False) -> str:
    """A metric in words, or by its name; what else tells it apart is added where it stands in the table twice."""
    title = key.metric if short else METRICS[key.metric].title
    namesakes = {(other.split, other.layer, other.pooling) for other in among if other.metric == key.metric}
    if len(namesakes) == 1:
        return title
    parts = zip((key.split, key.layer, key.pooling), zip(*namesakes, strict=True), strict=True)
    own = [str(value) for value, values in parts if len(set(values)) > 1]
    return f"{title} ({', '.join(own)})"


def _names(row: Row, keys: Sequence[Key], by: str, first: bool) -> tuple[Entry | str, ...]:
    title = Entry(title_of(row.key, keys), row.key.metric) if first else ""
    if by == "task":
        return (title,)
    named = [] if by == "language" else row.languages
    return title, Entry(row.group, ", ".join(named) if len(named) <= _MAX_NAMED else f"{len(named)} languages")


def _score_entry(key: Key, found: GroupCell | None) -> Entry:
    if found is None:
        return _ABSENT
    text = _score_text(key, found.cell)
    if found.cell.at_chance:
        return Entry(text, AT_CHANCE, quiet=True)
    return Entry(text, below=_points_and_interval(found.difference)) if found.difference else Entry(text)


def _score_text(key: Key, cell: Cell) -> str:
    spread = "" if cell.spread is None else f" {PLUS_MINUS} {_number(key, cell.spread)}"
    return f"{_number(key, cell.mean)}{spread}"


def _points_and_interval(difference: Difference) -> str:
    if difference.low is None or difference.high is None:
        return _points(difference.mean)
    return f"{_points(difference.mean)} [{_end(difference.low)}, {_end(difference.high)}]"


def _explain(comparison: Comparison, rows: Sequence[Row]) -> list[str]:
    """What the notation means, as far as the table uses it."""
    cells = [cell for row in rows for cell in row.cells.values()]
    lines = []
    if any(cell.cell.spread is not None for cell in cells):
        lines.append(f"{PLUS_MINUS} is the sample standard deviation over seeds.")
    if any(cell.difference for cell in cells):
        interval = ", with its 95 % interval" if _any_interval(rows) else ""
        lines.append(f"Below: the difference from {comparison.baseline} in points{interval}.")
    if any(set(cell.languages) != set(row.languages) for row in rows for cell in row.cells.values()):
        lines.append("Not every score of a row is a mean over the same languages; differences are over common ones.")
    return lines


def _any_interval(rows: Sequence[Row]) -> bool:
    differences = (cell.difference for row in rows for cell in row.cells.values())
    return any(difference is not None and difference.low is not None for difference in differences)


def _chances(row: Row) -> str:
    chances = sorted(
        {_chance(cell.cell.chance) for cell in row.cells.values() if cell.cell.chance is not None}, key=float
    )
    return " to ".join(_ends(chances))


def _sizes(row: Row) -> str:
    return " to ".join(_ends([f"{n:,}" for n in sorted({cell.cell.n for cell in row.cells.values()})]))


def _count_languages(row: Row) -> str:
    """Over how many languages or pairs the mean is, and whether English itself is one of them."""
    same = set(row.languages) - {ALL_LANGUAGES}
    return f"{len(same)} language{'s' * (len(same) > 1)}" + (", with en" if "en" in same else "") if same else ""


def _span(values: Iterable[str], between: str) -> str:
    every = list(values)
    return every[0] if len(set(every)) == 1 else between.join(every)


def _ends(values: Sequence[str]) -> list[str]:
    return [values[0], values[-1]] if len(values) > 1 else list(values)


def _number(key: Key, value: float) -> str:
    return f"{100 * value:.1f}" if is_share(key.metric) else f"{value:.2f}"


def _points(gap: float) -> str:
    return f"{round(100 * gap, 1) + 0.0:+.1f}"  # adding zero makes -0.0 a plain zero


def _end(gap: float) -> str:
    return _points(gap).removeprefix("+")


def _chance(value: float) -> str:
    return f"{100 * value:.2g}"
