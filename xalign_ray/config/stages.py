"""Stages of a run: partial recipes, one after the other, of what may change while one model is trained.

    stages:
      - {name: web, masking: {mlm_probability: 0.3}, train: {max_steps: 9000}}
      - {name: decay, masking: {mlm_probability: 0.05}, train: {max_steps: 1000}}

A stage's keys stand where they stand in the recipe and take the place of the recipe's own, which hold where a stage
says nothing. What is not here is the same in all stages: data, tokenizer, model, optimizer, ZeRO stage, output.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from xalign_ray.config.choices import Objective, Stream
from xalign_ray.config.fields import Float, Frozen, Int, Positive, Scheduled, Within
from xalign_ray.config.language_codes import Language
from xalign_ray.config.training import ScheduleConfig


class StageData(Frozen):
    """Of `data`."""

    max_seq_length: Annotated[
        Int | None,
        Field(ge=8, le=8192, description="length of a packed row in this stage; at most the recipe's own"),
    ] = None


class StageSampling(Frozen):
    """Of `sampling`."""

    alpha: Annotated[
        Annotated[Scheduled, Within(ge=0, le=1)] | None, Field(description="exponent of the sizes in this stage")
    ] = None
    temperature: Annotated[Float | None, Field(ge=1, description="1/alpha; give one of the two")] = None
    languages: Annotated[
        tuple[Language, ...] | None,
        Field(min_length=1, description="languages that are drawn in this stage, pairs where both are; null is all"),
    ] = None

    @model_validator(mode="after")
    def _one_of_two(self) -> StageSampling:
        if self.alpha is not None and self.temperature is not None:
            raise ValueError("alpha and temperature say the same thing twice; keep one (alpha = 1/temperature)")
        return self


class StageMasking(Frozen):
    """Of `masking`."""

    mlm_probability: Annotated[
        Annotated[Scheduled, Within(gt=0, lt=1)] | None, Field(description="part of the tokens that is predicted")
    ] = None


class StageOptimizer(Frozen):
    """Of `train.optimizer`."""

    learning_rate: Annotated[Float | None, Field(gt=0, description="at the peak of the schedule")] = None


class StageTrain(Frozen):
    """Of `train`."""

    max_steps: Annotated[Positive, Field(description="optimizer steps of this stage")]
    global_batch_size: Annotated[
        Int | None, Field(ge=1, description="rows of a step in this stage, over all workers")
    ] = None
    per_device_batch_size: Annotated[
        Int | None, Field(ge=1, description="at most so many rows in one forward pass of a worker in this stage")
    ] = None
    optimizer: StageOptimizer = StageOptimizer()
    schedule: Annotated[
        ScheduleConfig | None,
        Field(description="over the steps of this stage; null in all stages: the recipe's own, over the whole run"),
    ] = None


class StageConfig(Frozen):
    """A partial recipe for some of the steps."""

    name: Annotated[str, Field(min_length=1, description="what events, plans and reports call this stage")]
    data: StageData = StageData()
    sampling: StageSampling = StageSampling()
    streams: Annotated[
        tuple[Stream, ...] | None, Field(min_length=1, description="kinds of rows in this stage, mixed by weight")
    ] = None
    masking: StageMasking = StageMasking()
    objectives: Annotated[
        tuple[Objective, ...] | None, Field(min_length=1, description="losses of this stage, added by their weights")
    ] = None
    train: StageTrain


MAY_CHANGE = (
    "data.max_seq_length, sampling (alpha, temperature, languages), streams, masking.mlm_probability, objectives, "
    "train (max_steps, global_batch_size, per_device_batch_size, optimizer.learning_rate, schedule)"
)


def pool_at(pool: str, length: int) -> str:
    """The name of a pool whose rows are packed to another length than the recipe's own: text/en -> text-512/en."""
    kind, _, languages = pool.partition("/")
    return f"{kind}-{length}/{languages}"
