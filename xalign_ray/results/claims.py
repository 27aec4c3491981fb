"""The papers' claims as data: a sign, an order or a correlation, the arms that it is about, and what was printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from xalign_ray.config.fields import Frozen
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.results.printed import cells, read_paper
from xalign_ray.results.quantity import Quantity


class _Claim(Frozen):
    """What all kinds have; `arms` are labels of the package's studies."""

    paper: str
    table: Annotated[str, Field(description="where the numbers behind it are printed")]
    says: str
    note: str = ""
    arms: tuple[str, ...]


class Order(_Claim):
    """Each arm is above the next on the measure, by more than some points."""

    kind: Literal["order"] = "order"
    by: Annotated[float, Field(ge=0, description="points, hundredths of a share")] = 0.0
    measure: Quantity

    @property
    def quantities(self) -> list[Quantity]:
        """One an arm."""
        return [self.measure.model_copy(update={"label": arm}) for arm in self.arms]


class Coverage(Order):
    """The first arm's gain over the second is larger in languages with a dictionary than in those without."""

    kind: Literal["coverage"] = "coverage"  # type: ignore[assignment]

    @property
    def quantities(self) -> list[Quantity]:
        """The gain with a dictionary, then that without."""
        gain = {"label": self.arms[0], "less": {"label": self.arms[1]}}
        return [self.measure.model_copy(update={**gain, "dictionary": has}) for has in (True, False)]


class Near(Order):
    """The measure of each arm, mostly a difference, lies within some points of zero."""

    kind: Literal["near"] = "near"  # type: ignore[assignment]
    within: Annotated[float, Field(gt=0, description="points, hundredths of a share")]


class Correlation(_Claim):
    """Over arms and languages, two measures rise together (positive) or against each other (negative)."""

    kind: Literal["correlation"] = "correlation"
    sign: Literal["positive", "negative"]
    x: Quantity
    y: Quantity


Claim = Order | Coverage | Near | Correlation
_CLAIMS: TypeAdapter[Mapping[str, Claim]] = TypeAdapter(Mapping[str, Annotated[Claim, Field(discriminator="kind")]])


@cache
def read_claims() -> Mapping[str, Claim]:
    """All claims by name, those of a paper after each other."""
    return _CLAIMS.validate_python(
        parse_yaml((Path(__file__).parent / "papers" / "claims.yaml").read_text(encoding="utf-8"))
    )


def printed_values(claim: Order) -> list[float]:
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
