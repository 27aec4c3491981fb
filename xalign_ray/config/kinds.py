"""Unions of kinds that a user's own modules can add to after they were written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from pydantic import ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import InitErrorDetails

from xalign_ray.config.fields import Frozen


def kinds_of(union: Any) -> dict[str, Any]:
    """The classes of `Annotated[A | B, ...]` by their kinds."""
    return {choice.model_fields["kind"].default: choice for choice in get_args(get_args(union)[0])}


def or_one_of(added: Mapping[str, type[Frozen]]) -> WrapValidator:
    """Lets a union of kinds take those of `added` too; mistakes in one are located as in a kind of the union."""

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
