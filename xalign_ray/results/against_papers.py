"""What the papers print next to what a report's arms reached: cells that both have, claims judged, and their tables"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import pandas as pd
import rich.table

from xalign_ray.results.aggregate import Average
from xalign_ray.results.difference import spearman
from xalign_ray.results.printed import (
    PAPERS,
    ZERO_SHOT,
    Correlation,
    Coverage,
    Near,
    PrintedCell,
    PrintedRow,
    PrintedTable,
    Quantity,
    cells,
    printed_points,
    printed_values,
    read_paper,
)
from xalign_ray.results.run import Run, columns_of
from xalign_ray.results.tables import NONE, PLUS_MINUS, Entry, Row, Table, plain_grid, show_average
from xalign_ray.results.verdicts import UNDECIDED, Measured, Verdict, judge_all, with_stand_ins

CELL_COLUMNS = [
    *("paper", "table", "section", "row", "quoted", "column", "printed", "printed_deviation", "recomputed"),
    *("label", "metric", "ours", "standard_deviation", "difference", "seeds", "languages", "scale"),
]
CLAIM_COLUMNS = [
    *("claim", "paper", "table", "says", "verdict", "why", "step", "printed", "size", "estimate", "low_95", "high_95"),
    *("languages", "seeds", "scale"),
]
COMPATIBLE, EXCLUDED = "compatible", "excluded at this size"
_PERCENT = 100


@dataclass(frozen=True)
class Ours:
    """What an arm of the report has of a printed number."""

    quantity: Quantity
    average: Average
    languages: tuple[str, ...]
    scale: str

    @property
    def mean(self) -> float:
        """In percent, as what is printed."""
        return _PERCENT * self.average.mean

    @property
    def deviation(self) -> float | None:
        """Over seeds, in percent."""
        return None if self.average.deviation is None else _PERCENT * self.average.deviation

    @property
    def seeds(self) -> int:
        """How many."""
        return len(self.average.of_seeds)

    def above(self, printed: PrintedCell) -> float:
        """The difference from what is printed, or from what follows from other cells where that is not the same."""
        value = printed.value if printed.computed is None else printed.computed
        assert value is not None
        return self.mean - value


@dataclass(frozen=True)
class ComparedTable:
    """A printed table that the report has at least one cell of; `rows` are all of it, a cell a column."""

    paper: str
    name: str
    table: PrintedTable
    rows: Sequence[tuple[PrintedRow, Mapping[str, tuple[PrintedCell, Ours | None]]]]


@dataclass(frozen=True)
class Step:
    """One number of a claim: what must be above zero, as it is printed and as it is here; percent or a correlation.

    `size` says whether the printed number lies in the interval: COMPATIBLE, EXCLUDED or UNDECIDED.
    """

    name: str
    printed: float
    estimate: float | None
    interval: tuple[float, float] | None
    size: str


@dataclass(frozen=True)
class AgainstPapers:
    """What a report says of the papers whose arms it has; `scales` of each label."""

    tables: Sequence[ComparedTable]
    verdicts: Sequence[Verdict]
    scales: Mapping[str, str]

    @property
    def papers(self) -> list[str]:
        """In the order of PAPERS."""
        named = {table.paper for table in self.tables} | {verdict.claim.paper for verdict in self.verdicts}
        return [name for name in PAPERS if name in named]

    def scale_of(self, verdict: Verdict) -> str:
        """The scales of a claim's arms, as far as they were run."""
        return ", ".join(dict.fromkeys(filter(None, (self.scales.get(arm, "") for arm in verdict.arms))))


def against_papers(runs: Sequence[Run], known: Measured) -> AgainstPapers:
    """The cells that these runs share with the papers' tables, and the verdicts on the papers' claims.

    A paper is one that these runs are about if they have a label that no other paper has (so not `mlm`), and a cell of
    its tables or scores of all arms of a claim.

    Args:
        runs: with labels.
        known: their scores.
    """
    scales = {
        label: ", ".join(dict.fromkeys(filter(None, (run.scale for run in own))))
        for label, own in columns_of(runs).items()
    }
    named = _papers_of(scales)
    tables = [table for name in named for table in _compare_tables(name, known, scales)]
    verdicts = sorted(judge_all(named, known), key=lambda one: PAPERS.index(one.claim.paper))
    judged = {verdict.claim.paper for verdict in verdicts if verdict.seeds} | {table.paper for table in tables}
    return AgainstPapers(tables, [verdict for verdict in verdicts if verdict.claim.paper in judged], scales)


def steps_of(verdict: Verdict) -> list[Step]:
    """Of an order a step from each arm to the next, of the other claims one; without ours where nothing is known."""
    claim, factor = verdict.claim, _PERCENT
    if isinstance(claim, Correlation):
        places = printed_points(claim)
        printed = [float(spearman([x for *_, x, _ in places], [y for *_, y in places]))]
        names, factor = ["Spearman's correlation"], 1
    elif isinstance(claim, Coverage):
        values = printed_values(claim)
        names, printed = [f"{' less '.join(verdict.arms)}, with less without a dictionary"], [values[0] - values[1]]
    elif isinstance(claim, Near):
        names, printed = list(verdict.arms), printed_values(claim)
    else:
        names = [" less ".join(pair) for pair in pairwise(verdict.arms)]
        printed = [one - other for one, other in pairwise(printed_values(claim))]
    estimates = [factor * value for value in verdict.estimates] or [None] * len(names)
    intervals = [(factor * low, factor * high) for low, high in verdict.intervals]
    if len(intervals) < len(names):
        intervals = [None] * len(names)
    sizes = [
        UNDECIDED if ends is None or verdict.seeds < 2 else COMPATIBLE if ends[0] <= value <= ends[1] else EXCLUDED
        for value, ends in zip(printed, intervals, strict=True)
    ]
    return [Step(*one) for one in zip(names, printed, estimates, intervals, sizes, strict=True)]


def cell_frame(found: AgainstPapers) -> pd.DataFrame:
    """A row a printed cell of the compared tables, with ours where there is one; CELL_COLUMNS, in percent."""
    rows = [
        (
            *(one.paper, one.name, row.section, row.name, row.quoted),
            *(column, cell.value, cell.deviation, cell.computed),
            *(_described(cell, ours) if ours else [None] * 8),
        )
        for one in found.tables
        for row, values in one.rows
        for column, (cell, ours) in values.items()
    ]
    return pd.DataFrame(rows, columns=CELL_COLUMNS)


def claim_frame(found: AgainstPapers) -> pd.DataFrame:
    """A row a step of each claim; CLAIM_COLUMNS, in percent but for correlations."""
    rows = [
        (
            *(one.name, one.claim.paper, one.claim.table, one.claim.says, one.verdict, one.why),
            *(step.name, step.printed, step.size, step.estimate, *(step.interval or (None, None))),
            *(one.languages, one.seeds, found.scale_of(one)),
        )
        for one in found.verdicts
        for step in steps_of(one)
    ]
    return pd.DataFrame(rows, columns=CLAIM_COLUMNS)


def _papers_of(labels: Mapping[str, str]) -> list[str]:
    """The papers of which the labels have one that is no other paper's, or that stands for one and is no paper's."""
    own = {name: {one.label for one in _quantities(name)} for name in PAPERS}
    papers = Counter(chain.from_iterable(own.values()))
    arms = {
        arm
        for arm, label in with_stand_ins(labels).items()
        if papers[arm] == 1 and (label == arm or label not in papers)
    }
    return [name for name in PAPERS if own[name] & arms]


def _quantities(name: str) -> Iterator[Quantity]:
    paper = read_paper(name)
    for cell in (cell for table in paper.tables.values() for cell in cells(paper, table)):
        yield from (one for one in (cell.quantity, cell.quantity and cell.quantity.taken_away) if one)


def _compare_tables(name: str, known: Measured, scales: Mapping[str, str]) -> Iterator[ComparedTable]:
    paper = read_paper(name)
    for title, table in paper.tables.items():
        printed, width = list(cells(paper, table)), len(table.columns)
        rows = [
            (row, {cell.column: (cell, _ours(cell, known, scales)) for cell in printed[at * width : (at + 1) * width]})
            for at, row in enumerate(table.rows)
        ]
        if any(ours for _, values in rows for _, ours in values.values()):
            yield ComparedTable(name, title, table, rows)


def _ours(cell: PrintedCell, known: Measured, scales: Mapping[str, str]) -> Ours | None:
    if cell.quantity is None or cell.value is None or not len(values := known.values(cell.quantity)):
        return None
    return Ours(cell.quantity, values.average, tuple(values.languages), scales.get(cell.quantity.label, ""))


def _described(cell: PrintedCell, ours: Ours) -> tuple[object, ...]:
    what = (ours.quantity.label, ours.quantity.metric, ours.mean, ours.deviation, ours.above(cell))
    return (*what, ours.seeds, " ".join(ours.languages), ours.scale)


CELLS, CLAIMS = "papers.csv", "claims.csv"
_MAX_CELLS = 40  # rows of a paper in a terminal
_JUDGED = (
    "A claim holds where the 95 % interval of each of its differences is above zero, and does not where one is below; "
    "the intervals of a claim are all right in 95 % of the cases. One seed is undecided. A printed size is compatible "
    "where the interval includes it, else excluded. A correlation of fewer than ten arms is described, not judged. All "
    "arms of a claim are scored on the same test set. Percent and points; what is printed is compared with what it is "
    "about here, at our scale and on our languages: a verdict is on the claim at that scale, not on the paper."
)

Cells = Mapping[str, tuple[PrintedCell, Ours | None]]


def verdict_table(found: AgainstPapers) -> Table | None:
    """What became of each claim and, below it, its steps: printed, ours with its interval; None without a claim."""
    rows = [row for one in found.verdicts for row in _verdict_rows(one, found.scale_of(one))]
    header = ("verdict: claim", "printed", "ours", "languages", "seeds", "scale")
    return Table("Claims judged", header, rows, _JUDGED, link=CLAIMS) if rows else None


def cell_tables(found: AgainstPapers) -> list[Table]:
    """The papers' tables in their own shape: rows and columns that both have, and rows that only exist in print."""
    return [_cell_table(one) for one in found.tables]


def sources(found: AgainstPapers) -> list[str]:
    """What to cite, a line a paper."""
    return [f"{name.upper()}: {read_paper(name).title}. {read_paper(name).citation}." for name in found.papers]


def terminal_tables(found: AgainstPapers) -> Iterator[rich.table.Table]:
    """The cells that both have, a row a cell and at most 40 a paper, and the verdicts."""
    for paper in found.papers:
        rows = [row for one in found.tables if one.paper == paper for row in _terminal_cells(one)]
        if not rows:
            continue
        more = f"; {len(rows) - _MAX_CELLS} more rows in {CELLS}" if len(rows) > _MAX_CELLS else ""
        title = f"{paper.upper()}, printed and ours{more}"
        yield plain_grid(Table(title, ("", "printed", "ours", "seeds"), rows[:_MAX_CELLS]))
    rows = [row for one in found.verdicts for row in _terminal_claim(one)]
    if rows:
        yield plain_grid(Table("Claims of the papers, with 95 % intervals", ("", "printed", "ours", "seeds"), rows))


def _verdict_rows(one: Verdict, scale: str) -> Iterator[Row]:
    source = f"{one.claim.paper.upper()}, {one.claim.table}"
    yield (Entry(f"{one.verdict}: {_sentence(one)}", "; ".join(filter(None, (one.why, source, one.claim.note)))),)
    for number, step in enumerate(steps_of(one) if one.seeds else []):
        ours = Entry(_estimate(one, step), _arms(one, number))
        printed = Entry(_number(one, step.printed), step.size)
        yield (step.name, printed, ours, str(one.languages), str(one.seeds), scale or "-")


def _sentence(one: Verdict) -> str:
    return one.claim.says[0].upper() + one.claim.says[1:]


def _estimate(one: Verdict, step: Step) -> str:
    if step.estimate is None:
        return "-"
    ends = f" [{', '.join(_number(one, end).lstrip('+') for end in step.interval)}]" if step.interval else ""
    return _number(one, step.estimate) + ends


def _arms(one: Verdict, number: int) -> str:
    """The scores that a difference is of."""
    of = one.ours[number : number + 2]
    return " less ".join(show_average(one) for one in of)


def _number(one: Verdict, value: float) -> str:
    return f"{value:+.2f}" if isinstance(one.claim, Correlation) else f"{round(value, 1) + 0.0:+.1f}"


def _cell_table(one: ComparedTable) -> Table:
    shown = [name for name in one.table.columns if any(values[name][1] for _, values in one.rows)]
    kept = [(row, values) for row, values in one.rows if _is_shown(row, values, shown)]
    rows, last = list[Row](), ""
    for row, values in kept:
        rows += [(Entry(row.section),)] if row.section and row.section != last else []
        last = row.section
        rows.append(_cell_row(row, [values[name] for name in shown]))
    header = ("", *(name.replace("_", " ") for name in shown), "seeds", "scale")
    note = " ".join(_explain(one, kept, shown))
    return Table(f"{one.paper.upper()}, {one.name}: {one.table.caption}", header, rows, note, link=CELLS)


def _is_shown(row: PrintedRow, values: Cells, columns: Sequence[str]) -> bool:
    own = [values[name] for name in columns]
    return any(ours for _, ours in own) or (bool(row.quoted) and any(cell.value is not None for cell, _ in own))


def _cell_row(row: PrintedRow, values: Sequence[tuple[PrintedCell, Ours | None]]) -> Row:
    found = [ours for _, ours in values if ours]
    seeds, scales = sorted({ours.seeds for ours in found}), dict.fromkeys(ours.scale for ours in found if ours.scale)
    name = Entry(row.name, f"quoted from {row.quoted}" if row.quoted else "", "" if found else "quiet")
    return (name, *(_entry(*one) for one in values), _from_to(seeds) or "-", ", ".join(scales) or "-")


def _entry(cell: PrintedCell, ours: Ours | None) -> Entry:
    if cell.value is None:
        return NONE
    return Entry(_printed(cell), _reached(cell, ours) if ours else "", "" if ours else "quiet")


def _printed(cell: PrintedCell) -> str:
    assert cell.value is not None
    spread = "" if cell.deviation is None else f" {PLUS_MINUS} {cell.deviation:.1f}"
    return f"{cell.value:.1f}{spread}" + ("" if cell.computed is None else f" / {cell.computed:.1f}")


def _reached(cell: PrintedCell, ours: Ours) -> str:
    return f"{show_average(ours.average)} ({round(ours.above(cell), 1) + 0.0:+.1f})"


def _explain(one: ComparedTable, kept: Sequence[tuple[PrintedRow, Cells]], shown: Sequence[str]) -> Iterator[str]:
    """How to read a table, as far as it applies."""
    both = [values[name] for _, values in kept for name in shown]
    yield f"In each cell what is printed and, below it, ours {PLUS_MINUS} deviation over seeds with the difference."
    if any(cell.computed is not None for cell, _ in both):
        yield "a / b: printed, and what follows from the other printed numbers; the difference is from b."
    if any(row.quoted for row, _ in kept):
        yield "Quoted: the paper repeats these numbers of others."
    means = {ours.languages for _, ours in both if ours and ours.quantity.language in ("", ZERO_SHOT)}
    if means:
        count = _from_to(sorted({len(languages) for languages in means}))
        named = ", ".join(next(iter(means))) if len(means) == 1 and count != "1" else f"{count} (named in {CELLS})"
        yield f"Means of ours are over our languages: {named}."
    if left := len(one.rows) - len(kept):
        yield f"{left} row{'s' * (left > 1)} of print whose arms have no score here: only in {CELLS}."
    if one.table.notes:
        yield f"Of the print: {'; '.join(one.table.notes)}."


def _from_to(numbers: Sequence[int]) -> str:
    return " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1])))) if numbers else ""


def _terminal_cells(one: ComparedTable) -> list[list[str]]:
    rows = [
        [f"  {row.shown} {name.replace('_', ' ')}", _printed(cell), _reached(cell, ours), str(ours.seeds)]
        for row, values in one.rows
        for name, (cell, ours) in values.items()
        if ours
    ]
    return [[one.name, *[""] * 3], *rows]


def _terminal_claim(one: Verdict) -> Iterator[list[str]]:
    yield [_sentence(one), *[""] * 3]
    said = f"  {one.verdict}{f': {one.why}' if one.why else ''}"
    for number, step in enumerate(steps_of(one)):
        printed = str(Entry(_number(one, step.printed), step.size))
        numbers = [printed, _estimate(one, step), str(one.seeds)] if one.seeds else [""] * 3
        if number == 0 or one.seeds:
            yield [said if number == 0 else "", *numbers]
