"""Puts what the papers print next to what a report's arms reached: cells that both have, and claims judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import pandas as pd

from xalign_ray.results.aggregate import Average
from xalign_ray.results.difference import spearman
from xalign_ray.results.printed import (
    PAPERS,
    Claim,
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
from xalign_ray.results.verdicts import Measured, Verdict, judge_all

CELL_COLUMNS = [
    *("paper", "table", "section", "row", "quoted", "column", "printed", "printed_deviation", "recomputed"),
    *("label", "metric", "ours", "standard_deviation", "difference", "seeds", "languages", "scale"),
]
CLAIM_COLUMNS = [
    *("claim", "paper", "table", "says", "verdict", "why", "step", "printed", "estimate", "low_95", "high_95"),
    *("languages", "seeds", "scale"),
]
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
    """One number of a claim: what must be above zero, as it is printed and as it is here; percent or a correlation."""

    name: str
    printed: float
    estimate: float | None
    interval: tuple[float, float] | None


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

    def scale_of(self, claim: Claim) -> str:
        """The scales of a claim's arms, as far as they were run."""
        return ", ".join(dict.fromkeys(filter(None, (self.scales.get(arm, "") for arm in claim.arms))))


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
        names, printed = [f"{' less '.join(claim.arms)}, with less without a dictionary"], [values[0] - values[1]]
    elif isinstance(claim, Near):
        names, printed = list(claim.arms), printed_values(claim)
    else:
        names = [" less ".join(pair) for pair in pairwise(claim.arms)]
        printed = [one - other for one, other in pairwise(printed_values(claim))]
    estimates = [factor * value for value in verdict.estimates] or [None] * len(names)
    intervals = [(factor * low, factor * high) for low, high in verdict.intervals]
    if len(intervals) < len(names):
        intervals = [None] * len(names)
    return [Step(*one) for one in zip(names, printed, estimates, intervals, strict=True)]


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
            *(step.name, step.printed, step.estimate, *(step.interval or (None, None))),
            *(one.languages, one.seeds, found.scale_of(one.claim)),
        )
        for one in found.verdicts
        for step in steps_of(one)
    ]
    return pd.DataFrame(rows, columns=CLAIM_COLUMNS)


def _papers_of(labels: Mapping[str, str]) -> list[str]:
    """The papers of which the labels have one that is no other paper's."""
    own = {name: {one.label for one in _quantities(name)} for name in PAPERS}
    papers = Counter(chain.from_iterable(own.values()))
    return [name for name in PAPERS if any(papers[label] == 1 for label in own[name] & labels.keys())]


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
