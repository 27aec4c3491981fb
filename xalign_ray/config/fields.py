"""Building blocks of recipes: the frozen base class, numbers with bounds or a schedule, unions of kinds"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Self, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from xalign_ray.work.credentials import without_credentials
from xalign_ray.work.storage import expand_home


class Frozen(BaseModel):
    """A block of the tree: unknown keys are errors, values never change. The text below a key describes it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    def _faults(self) -> Iterator[str]:
        """Sentences on values that do not go together; the first is the error."""
        yield from ()

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if fault := next(self._faults(), None):
            raise ValueError(fault)
        return self


def no_truth_value(given: Any) -> Any:
    """Refuses `true` for a number, which pydantic takes for 1."""
    if isinstance(given, bool):
        raise PydanticCustomError("number", "must be a number, not true or false")
    return given


def _local_path(given: str) -> str:
    """`~` is the home folder."""
    if not given.strip():
        raise ValueError("the path is empty; `.` is the current folder")
    return expand_home(given)


Int = Annotated[int, BeforeValidator(no_truth_value), Field(gt=-(2**63), lt=2**63)]
Float = Annotated[float, BeforeValidator(no_truth_value)]
Fraction = Annotated[Float, Field(ge=0.0, le=1.0)]
NonNegative = Annotated[Int, Field(ge=0)]
Positive = Annotated[Int, Field(ge=1)]
NonNegativeFloat = Annotated[Float, Field(ge=0)]
PositiveFloat = Annotated[Float, Field(gt=0)]
LocalPath = Annotated[str, AfterValidator(_local_path)]  # of a file or folder; URLs, hub ids and names stay
Uri = Annotated[str, AfterValidator(without_credentials)]  # of a tracking server or database


def kinds_of(union: Any) -> dict[str, Any]:
    """The classes of `Annotated[A | B, ...]` by their kinds."""
    return {choice.model_fields["kind"].default: choice for choice in get_args(get_args(union)[0])}


def or_one_of(added: Mapping[str, type[Frozen]]) -> WrapValidator:
    """Adds kinds to a union; mistakes in one are located as in a kind of the union."""

    def choose(given: Any, one_of_union: ValidatorFunctionWrapHandler) -> Any:
        kind = given.get("kind") if isinstance(given, Mapping) else getattr(given, "kind", None)
        if not isinstance(kind, str) or kind not in added:
            return one_of_union(given)
        try:
            return added[kind].model_validate(given)
        except ValidationError as error:
            faults = [{**fault, "loc": (kind, *fault["loc"])} for fault in error.errors(include_url=False)]
            raise ValidationError.from_exception_data(error.title, cast("list[InitErrorDetails]", faults)) from None

    return WrapValidator(choose)


Scheduled = float | tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Within:
    """The range of a scheduled number; `Annotated[Scheduled, Within(gt=0)]` checks every value and the steps.

    The bounds have the names of pydantic's `Field`. Every `Scheduled` of the tree
    carries one, if only `Within()`: it is what checks that steps increase.
    """

    gt: float = -math.inf
    ge: float = -math.inf
    lt: float = math.inf
    le: float = math.inf

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Checks before pydantic tries the union, so that an error is reported once, and for the key itself."""
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
        for bound, holds, words in (
            (self.gt, value > self.gt, "more than"),
            (self.ge, value >= self.ge, "at least"),
            (self.lt, value < self.lt, "less than"),
            (self.le, value <= self.le, "at most"),
        ):
            if math.isfinite(bound) and not holds:
                raise _wrong(f"must be {words} {bound:g}")
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


def _wrong(words: str) -> PydanticCustomError:
    return PydanticCustomError("scheduled_number", "{words}", {"words": words})
