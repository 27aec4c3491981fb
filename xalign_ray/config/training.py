"""How long a recipe trains, in what steps, and how its weights move; lengths may be counted in pairs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from xalign_ray.config.fields import Float, Frozen, Int
from xalign_ray.config.optimizer import AdamW, Optimizer


class ScheduleConfig(Frozen):
    """Linear warm-up to the peak, then linear decay to zero at the last step."""

    warmup_steps: Annotated[
        Float,
        Field(ge=0, description="steps until the peak; below 1 a share of all steps, else their number"),
        AfterValidator(lambda given: int(given) if given == int(given) else given),
    ] = 0

    def steps_of(self, max_steps: int) -> int:
        """The warm-up of a run of so many steps, in whole ones."""
        return int(self.warmup_steps * max_steps if self.warmup_steps < 1 else self.warmup_steps)


class TrainConfig(Frozen):
    """How long, how many rows a step, and how weights move.

    A row holds several pairs. Where a length is given in epochs or in pairs, `prepare` counts the pairs, and the steps
    and rows that follow (docs/explanation/methods.md, Pairs and rows) are written into the run's config.yaml.
    """

    max_steps: Annotated[Int, Field(ge=0, description="optimizer steps of the run; 0 is as num_train_epochs says")] = 0
    num_train_epochs: Annotated[
        Float,
        Field(
            ge=0,
            description="passes over the pairs, or over the text where no stream reads pairs; counted only if "
            "max_steps is 0",
        ),
    ] = 0
    global_batch_size: Annotated[
        Int, Field(ge=0, description="rows of a step, over all workers; 0 is as pairs_per_step says")
    ] = 0
    pairs_per_step: Annotated[
        Int,
        Field(
            ge=0,
            description="pairs of a step, over all workers, on average: so many rows as hold them; counted only if "
            "global_batch_size is 0",
        ),
    ] = 0
    per_device_batch_size: Annotated[
        Int, Field(ge=1, description="at most so many rows in one forward pass of a worker")
    ] = 32
    optimizer: Annotated[Optimizer, Field(description="how weights move")] = AdamW()
    schedule: ScheduleConfig = ScheduleConfig()
    bf16: Annotated[
        bool,
        Field(
            description="bf16 over fp32 master weights: DeepSpeed's, at ZeRO stage 0 torch's autocast; fp32 if false"
        ),
    ] = False
    tf32: Annotated[bool, Field(description="TF32 in the matrix products of fp32 on GPUs that have it")] = True
    attention: Annotated[
        Literal["auto", "dense", "varlen"],
        Field(
            description="how the examples of a row are kept apart: by a mask over the row, or, without its padding, by "
            "kernels for variable lengths; auto is varlen wherever it is faster"
        ),
    ] = "auto"
    gradient_checkpointing: Annotated[
        bool, Field(description="make the activations of each layer again going backward instead of keeping them")
    ] = False
    torch_compile: Annotated[
        bool, Field(description="run the encoder's layers through torch.compile; minutes at the start")
    ] = False
    max_grad_norm: Annotated[Float, Field(ge=0, description="0 is no clipping")] = 1.0
    eval_steps: Annotated[Int, Field(ge=0, description="0 is never")] = 100
    retrieval_steps: Annotated[
        Int | None,
        Field(ge=0, description="steps between retrieval scores on data.tests; null: a tenth of the run; 0: never"),
    ] = None

    @model_validator(mode="after")
    def _has_a_length(self) -> TrainConfig:
        if not self.max_steps and not self.num_train_epochs:
            raise ValueError("its length is not given; set max_steps, or num_train_epochs")
        if not self.global_batch_size and not self.pairs_per_step:
            raise ValueError("the size of a step is not given; set global_batch_size, or pairs_per_step")
        return self

    @property
    def is_counted(self) -> bool:
        """Whether steps and rows are known without the data."""
        return bool(self.max_steps and self.global_batch_size)

    @property
    def in_words(self) -> str:
        """Its length for a reader, as it was given."""
        steps = f"{self.max_steps:,} steps" if self.max_steps else f"{self.num_train_epochs:g} epochs in steps"
        return f"{steps} of {_counted(self.global_batch_size, 'row') or _counted(self.pairs_per_step, 'pair')}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}" if number else ""
