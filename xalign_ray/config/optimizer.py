"""The optimizers that a recipe may name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from xalign_ray.config.fields import Float, Fraction, Frozen


class _Adam(Frozen):
    """Averages of the gradient and its square, and decoupled weight decay, none on biases and LayerNorm."""

    beta1: Annotated[Fraction, Field(description="decay of the average of the gradient")] = 0.9
    beta2: Annotated[Fraction, Field(description="decay of the average of its square")] = 0.999
    epsilon: Annotated[Float, Field(gt=0, description="added to the root of that")] = 1e-6
    weight_decay: Annotated[Float, Field(ge=0, description="decoupled; none on biases and LayerNorm")] = 0.01


class AdamW(_Adam):
    """Adam with decoupled weight decay."""

    kind: Literal["adamw"] = "adamw"
    learning_rate: Annotated[Float, Field(gt=0, description="at the peak of the schedule")] = 1e-4


class Lamb(_Adam):
    """LAMB: Adam's direction with decay, scaled to each tensor's own norm; ZeRO stages 0 to 2."""

    kind: Literal["lamb"] = "lamb"
    learning_rate: Annotated[Float, Field(gt=0, description="at the peak of the schedule")] = 1.6e-3


def _optimizer_kind(given: Any) -> Any:
    """The tag of an optimizer block: AdamW where a recipe names none."""
    return given.get("kind", "adamw") if isinstance(given, Mapping) else getattr(given, "kind", None)


Optimizer = Annotated[Annotated[AdamW, Tag("adamw")] | Annotated[Lamb, Tag("lamb")], Discriminator(_optimizer_kind)]
