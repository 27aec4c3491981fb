"""What the four papers print, as data: their tables, and their claims with the arms and numbers that they are about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, model_validator

from xalign_ray.config.explain import suggest
from xalign_ray.config.fields import Frozen
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import ConfigError

ZERO_SHOT = "zero-shot"
PAPERS = ("dict-mlm", "align-mlm", "weam", "ppa")
_HALF = 0.05  # numbers are printed to one decimal: each is off by so much at most
_NOISE = 1e-9

Number = float | None


class Quantity(Frozen):
    """One number of ours, as tables and claims of the papers name it.

    Labels are those of the package's studies, the same at every scale, so that what is printed finds its counterpart.
    """

    label: Annotated[str, Field(description="of the arm, as the study labels its column")] = ""
    metric: Annotated[str, Field(description="from the list of metrics")] = ""
    language: Annotated[str, Field(description="one; `zero-shot` is the mean of all but English; of all if empty")] = ""
    languages: Annotated[tuple[str, ...], Field(description="of a mean, only over these; over all if empty")] = ()
    dictionary: Annotated[
        bool | None, Field(description="only languages with a dictionary, or only those without; all if null")
    ] = None
    less: Annotated[Mapping[str, Any], Field(description="what the number that is taken away has otherwise")] = {}

    @model_validator(mode="after")
    def _less_is_a_quantity(self) -> Quantity:
        if self.less:
            _ = self.taken_away
        return self

    @property
    def taken_away(self) -> Quantity | None:
        """The number that is subtracted, None where there is none."""
        other = self.model_dump() | {"less": {}} | dict(self.less)
        return Quantity.model_validate(other) if self.less else None

    @property
    def added(self) -> Quantity:
        """The number that the other is taken away from."""
        return self.model_copy(update={"less": {}})


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


class _Claim(Frozen):
    """What all kinds have; `arms` are labels of the package's studies."""

    paper: str
    table: Annotated[str, Field(description="where the numbers behind it are printed")]
    says: str
    note: str = ""
    arms: tuple[str, ...]


class OrderClaim(_Claim):
    """Each arm is above the next on the measure, by more than some points."""

    kind: Literal["order"] = "order"
    by: Annotated[float, Field(ge=0, description="points, hundredths of a share")] = 0.0
    measure: Quantity

    @property
    def quantities(self) -> list[Quantity]:
        """One an arm."""
        return [self.measure.model_copy(update={"label": arm}) for arm in self.arms]


class Coverage(OrderClaim):
    """The first arm's gain over the second is larger in languages with a dictionary than in those without."""

    kind: Literal["coverage"] = "coverage"  # type: ignore[assignment]

    @property
    def quantities(self) -> list[Quantity]:
        """The gain with a dictionary, then that without."""
        gain = {"label": self.arms[0], "less": {"label": self.arms[1]}}
        return [self.measure.model_copy(update={**gain, "dictionary": has}) for has in (True, False)]


class Near(OrderClaim):
    """The measure of each arm, mostly a difference, lies within some points of zero."""

    kind: Literal["near"] = "near"  # type: ignore[assignment]
    within: Annotated[float, Field(gt=0, description="points, hundredths of a share")]


class Correlation(_Claim):
    """Over arms and languages, two measures rise together (positive) or against each other (negative)."""

    kind: Literal["correlation"] = "correlation"
    sign: Literal["positive", "negative"]
    x: Quantity
    y: Quantity


Claim = OrderClaim | Coverage | Near | Correlation
_CLAIMS: TypeAdapter[Mapping[str, Claim]] = TypeAdapter(Mapping[str, Annotated[Claim, Field(discriminator="kind")]])


@cache
def read_claims() -> Mapping[str, Claim]:
    """All claims by name, those of a paper after each other."""
    return _CLAIMS.validate_python(
        parse_yaml((Path(__file__).parent / "papers" / "claims.yaml").read_text(encoding="utf-8"))
    )


def printed_values(claim: OrderClaim) -> list[float]:
    """What the claim's table prints of its arms, in their order; what follows from it where that does not add up."""
    found = _printed(claim.paper, [claim.table])

    def value(quantity: Quantity) -> float:
        """A difference that the table has no column for follows from its two numbers."""
        key, other = quantity.model_dump_json(), quantity.taken_away
        return found[key] if key in found or not other else value(quantity.added) - value(other)

    return [value(quantity) for quantity in claim.quantities]


def printed_points(claim: Correlation) -> list[tuple[str, str, float, float]]:
    """Arm, language, x and y of each point that the paper's tables print both numbers of, in percent."""
    found = _printed(claim.paper, read_paper(claim.paper).tables)
    languages = sorted({Quantity.model_validate_json(key).language for key in found})
    places = [(arm, language) for arm in claim.arms for language in languages]
    keys = [
        [measure.model_copy(update={"label": arm, "language": language}).model_dump_json() for arm, language in places]
        for measure in (claim.x, claim.y)
    ]
    points = zip(places, *keys, strict=True)
    return [(*place, found[x], found[y]) for place, x, y in points if x in found and y in found]


def _printed(paper: str, tables: Iterable[str]) -> dict[str, float]:
    """Numbers of tables by quantity; of one that stands in several, what the first has."""
    found: dict[str, float] = {}
    for cell in (cell for name in tables for cell in cells(read_paper(paper), read_paper(paper).tables[name])):
        if cell.quantity and cell.value is not None:
            value = cell.value if cell.computed is None else cell.computed
            found.setdefault(cell.quantity.model_dump_json(), value)
    return found
