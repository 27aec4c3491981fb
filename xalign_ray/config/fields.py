"""What the blocks of a recipe are made of: the frozen base class, and numbers with their bounds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from xalign_ray.work.credentials import without_credentials
from xalign_ray.work.local_paths import expand_home


class Frozen(BaseModel):
    """A block of the tree: unknown keys are errors, values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def no_truth_value(given: Any) -> Any:
    """Where a number is asked for, pydantic takes `true` for 1."""
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
Positive = Annotated[Int, Field(ge=1)]
LocalPath = Annotated[str, AfterValidator(_local_path)]  # of a file or folder; URLs, hub ids and names stay
Uri = Annotated[str, AfterValidator(without_credentials)]  # of a tracking server or database
OnBrokenFile = Annotated[
    Literal["stop", "keep_rest_out"],
    Field(description="what prepare does at a file whose rest cannot be read, whatever max_bad_fraction"),
]
