"""Reads the papers' printed tables, and computes again what follows from other numbers in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from pydantic import Field, model_validator

from xalign_ray.config.explain import suggest
from xalign_ray.config.fields import Frozen
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import ConfigError
from xalign_ray.results.quantity import Quantity

PAPERS = ("dict-mlm", "align-mlm", "weam", "ppa")
_HALF = 0.05  # numbers are printed to one decimal: each is off by so much at most
_NOISE = 1e-9

Number = float | None


class Check(Frozen):
    """What a column follows from: the mean of columns, one less another, or the same column of another table."""

    mean: tuple[str, ...] = ()
    minus: tuple[str, str] | None = None
    same: str = ""


class PrintedRow(Frozen):
    """A row as it stands, a value a column."""

    name: str
    section: str = ""
    quoted: Annotated[str, Field(description="whose number the paper repeats; empty where it is its own")] = ""
    ours: Annotated[Mapping[str, Any], Field(description="of the quantity of each of its cells")] = {}
    values: tuple[Number, ...]
    deviations: tuple[Number, ...] = ()

    @property
    def shown(self) -> str:
        """Its name with what it stands under."""
        return ": ".join(filter(None, (self.section, self.name)))


class PrintedTable(Frozen):
    """A table; `columns` has, by name, what its cells' quantities have in common."""

    caption: str
    unit: str
    columns: Mapping[str, Mapping[str, Any]]
    checks: Mapping[str, Check] = {}
    notes: tuple[str, ...] = ()
    rows: tuple[PrintedRow, ...]

    @model_validator(mode="after")
    def _is_rectangular(self) -> PrintedTable:
        for row in self.rows:
            if len(row.values) != len(self.columns) or len(row.deviations) not in (0, len(self.columns)):
                raise ValueError(f"row {row.shown} has {len(row.values)} values for {len(self.columns)} columns")
        return self

    def column(self, name: str) -> list[Number]:
        """The values of a column, a row each."""
        place = list(self.columns).index(name)
        return [row.values[place] for row in self.rows]


class Paper(Frozen):
    """What a paper prints; its tables by name, such as "Table 3"."""

    title: str
    citation: str
    tables: Mapping[str, PrintedTable]


@dataclass(frozen=True)
class PrintedCell:
    """One number.

    Attributes:
        value, deviation: as they are printed, None where they are not.
        computed: what follows from the other numbers, where that is not what is printed; else None.
        quantity: ours that it is to be compared with, None where there is none.
    """

    row: PrintedRow
    column: str
    value: Number
    deviation: Number
    computed: Number
    quantity: Quantity | None


@cache
def read_paper(name: str) -> Paper:
    """A paper by its name in PAPERS; ConfigError if it is none of them."""
    if name not in PAPERS:
        raise ConfigError(
            f"There are no printed tables of '{name}'.{suggest(name, PAPERS)} Known: {', '.join(PAPERS)}."
        )
    return Paper.model_validate(
        parse_yaml((Path(__file__).parent / "papers" / f"{name}.yaml").read_text(encoding="utf-8"))
    )


def cells(paper: Paper, table: PrintedTable) -> Iterator[PrintedCell]:
    """The cells of a table, row by row."""
    for number, row in enumerate(table.rows):
        values = dict(zip(table.columns, row.values, strict=True))
        deviations = row.deviations or (None,) * len(row.values)
        for (column, value), deviation in zip(values.items(), deviations, strict=True):
            computed = _compute(paper, table.checks.get(column), number, column, values)
            yield PrintedCell(row, column, value, deviation, computed, _quantity(table.columns[column], row.ours))


def _compute(paper: Paper, check: Check | None, number: int, column: str, values: Mapping[str, Number]) -> Number:
    """What a cell should be, None where it is that within what rounding can do, or where there is nothing to say."""
    if check is None or values[column] is None:
        return None
    if check.same:
        return _unless_close(values[column], [paper.tables[check.same].column(column)[number]], 0)
    if check.minus:
        first, second = (values[name] for name in check.minus)
        return _unless_close(values[column], [None if None in (first, second) else first - second], 3 * _HALF)  # type: ignore[operator]
    return _unless_close(values[column], [values[name] for name in check.mean], 2 * _HALF)


def _unless_close(printed: Number, numbers: Sequence[Number], within: float) -> Number:
    known = [number for number in numbers if number is not None]
    if printed is None or len(known) < len(numbers):
        return None
    return None if abs(fmean(known) - printed) <= within + _NOISE else fmean(known)


def _quantity(column: Mapping[str, Any], row: Mapping[str, Any]) -> Quantity | None:
    """A label may stand with a place for what the row says of it: `align-mlm{suffix}`."""
    merged = {**row, **column}
    merged["label"] = str(merged.get("label", "")).format(suffix=merged.pop("suffix", ""))
    return Quantity(**merged) if merged["label"] and merged.get("metric") else None
