"""The tables and claims that the four papers print, as data, with the arms and numbers of each claim"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from xalign_ray.config.yaml_text import parse_yaml

PAPERS = ("dict-mlm", "align-mlm", "weam", "ppa")
CELL_COLUMNS = ["paper", "table", "section", "row", "quoted", "column", "printed", "printed_deviation", "recomputed"]


@dataclass(frozen=True)
class Quantity:
    """One number of ours, as the papers' tables and claims name it.

    Attributes:
        label: of the arm, as the package's studies label its column; the same at every scale.
        language: one; `zero-shot` is the mean of all but English, "" that of all.
        languages: of a mean, only over these; over all if empty.
        dictionary: only languages with a dictionary, or only those without; all if None.
        less: fields of the number that is taken away, as far as they differ.
    """

    label: str = ""
    metric: str = ""
    language: str = ""
    languages: tuple[str, ...] = ()
    dictionary: bool | None = None
    less: tuple[tuple[str, Any], ...] = ()

    @property
    def parts(self) -> list[Quantity]:
        """The number, and the one that is taken away from it where there is one."""
        minuend = replace(self, less=())
        return [minuend, replace(minuend, **dict(self.less))] if self.less else [minuend]


_NO_QUANTITY = Quantity()


def _quantity(fields: Mapping[str, Any]) -> Quantity:
    lists = {"languages": tuple(fields.get("languages", ())), "less": tuple(fields.get("less", {}).items())}
    return Quantity(**{**fields, **lists})


@cache
def read_paper(name: str) -> Mapping[str, Any]:
    """Title, citation and printed tables of a paper in PAPERS."""
    return parse_yaml((Path(__file__).parent / "papers" / f"{name}.yaml").read_text(encoding="utf-8"))


@cache
def printed_cells() -> pd.DataFrame:
    """A row a printed number of all papers, in their order.

    The columns are CELL_COLUMNS, `line` (of its table) and `quantity` (ours that it is compared with, None
    where there is none). `recomputed` is what follows from other printed numbers where the printed one does not.
    """
    rows = []
    for paper in PAPERS:
        for name, table in read_paper(paper)["tables"].items():
            for line, row in enumerate(table["rows"]):
                of_row = (paper, name, row.get("section", ""), row["name"], row.get("quoted", ""))
                deviations = row.get("deviations") or [None] * len(row["values"])
                for (column, fields), value, deviation in zip(
                    table["columns"].items(), row["values"], deviations, strict=True
                ):
                    asked = {**row.get("ours", {}), **fields}
                    # A label may have a place for the row's suffix: `align-mlm{suffix}`.
                    asked["label"] = str(asked.get("label", "")).format(suffix=asked.pop("suffix", ""))
                    quantity = _quantity(asked) if asked["label"] and asked.get("metric") else None
                    corrected = row.get("corrected", {}).get(column)
                    rows.append((*of_row, column, value, deviation, corrected, line, quantity))
    return pd.DataFrame(rows, columns=[*CELL_COLUMNS, "line", "quantity"])


@dataclass(frozen=True)
class Claim:
    """A paper's claim on its arms, of one of four kinds.

    order: each arm is above the next on the measure, by more than `by` points. near: the measure of each arm lies
    `within` points of zero. coverage: the first arm's gain over the second is larger in languages with a dictionary.
    correlation: over arms and languages `x` and `y` have the `printed` rank correlation (Spearman).
    """

    name: str
    kind: str
    paper: str
    table: str
    says: str
    arms: tuple[str, ...]
    note: str = ""
    measure: Quantity = _NO_QUANTITY
    x: Quantity = _NO_QUANTITY
    y: Quantity = _NO_QUANTITY
    by: float = 0.0
    within: float = 0.0
    printed: float = 0.0

    @property
    def quantities(self) -> list[Quantity]:
        """The compared quantities: one an arm, the gains with and without a dictionary, or x of each arm and then y."""
        if self.kind == "coverage":
            gain = replace(self.measure, label=self.arms[0], less=(("label", self.arms[1]),))
            return [replace(gain, dictionary=has) for has in (True, False)]
        measures = (self.x, self.y) if self.kind == "correlation" else (self.measure,)
        return [replace(measure, label=arm) for measure in measures for arm in self.arms]


@cache
def read_claims() -> Mapping[str, Claim]:
    """All claims by name, paper by paper."""
    read = parse_yaml((Path(__file__).parent / "papers" / "claims.yaml").read_text(encoding="utf-8"))
    makers: Mapping[str, Any] = {"measure": _quantity, "x": _quantity, "y": _quantity, "arms": tuple}
    return {
        name: Claim(name, **{key: makers[key](value) if key in makers else value for key, value in fields.items()})
        for name, fields in read.items()
    }


def printed_values(claim: Claim) -> list[float]:
    """The printed values of the claim's quantities; a difference without a column follows from its two numbers."""
    cells = printed_cells().dropna(subset=["printed", "quantity"])
    cells = cells.loc[(cells.paper == claim.paper) & (cells.table == claim.table)].drop_duplicates("quantity")
    numbers = dict(zip(cells.quantity, cells.recomputed.fillna(cells.printed), strict=True))

    def value(quantity: Quantity) -> float:
        if quantity in numbers:
            return numbers[quantity]
        first, *subtracted = quantity.parts
        return numbers[first] - sum(value(part) for part in subtracted)

    return [value(quantity) for quantity in claim.quantities]
