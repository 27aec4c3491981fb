"""Numbers that may change over the steps of a run: a constant, or corners joined by straight lines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

Scheduled = float | tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Within:
    """The range of a scheduled number; `Annotated[Scheduled, Within(gt=0)]` checks every value and the steps.

    The bounds are those of pydantic's `Field`. Every `Scheduled` of the tree
    carries one, if only `Within()`: it is what checks that steps increase.
    """

    gt: float = -math.inf
    ge: float = -math.inf
    lt: float = math.inf
    le: float = math.inf

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Checks before pydantic tries the union, so that what is wrong is said once and of the key itself."""
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def check(self, given: Any) -> Scheduled:
        """The number or its corners, typed.

        Raises:
            PydanticCustomError: which sentence of `config/explain` follows the key and the value.
        """
        if _is_number(given):
            return self._in_range(given)
        if not isinstance(given, list | tuple) or not given or not all(map(_is_corner, given)):
            raise _wrong("must be a number, or a list of [step, value] with whole steps from 0")
        corners = tuple((int(step), self._in_range(value)) for step, value in given)
        if any(later <= earlier for (earlier, _), (later, _) in pairwise(corners)):
            raise _wrong("must have increasing steps")
        return corners

    def _in_range(self, value: float) -> float:
        for bound, holds, said in (
            (self.gt, value > self.gt, "more than"),
            (self.ge, value >= self.ge, "at least"),
            (self.lt, value < self.lt, "less than"),
            (self.le, value <= self.le, "at most"),
        ):
            if math.isfinite(bound) and not holds:
                raise _wrong(f"must be {said} {bound:g}")
        return float(value)


def value_at(scheduled: Scheduled, step: int) -> float:
    """The value at a step, counted from 0: linear between corners, constant before the first and after the last."""
    if isinstance(scheduled, int | float):
        return float(scheduled)
    first, value = scheduled[0]
    for after, reached in scheduled:
        if step < after:
            return value + (reached - value) * max(0, step - first) / max(1, after - first)
        first, value = after, reached
    return value


def _is_number(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given)


def _is_corner(given: Any) -> bool:
    if not isinstance(given, list | tuple) or len(given) != 2:
        return False
    step, value = given
    return isinstance(step, int) and not isinstance(step, bool) and step >= 0 and _is_number(value)


def _wrong(said: str) -> PydanticCustomError:
    return PydanticCustomError("scheduled_number", "{said}", {"said": said})
