"""A number that a study can have: a metric of an arm, in a language or the mean of several, or a difference of two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, model_validator

from xalign_ray.config.fields import Frozen

ZERO_SHOT = "zero-shot"


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
