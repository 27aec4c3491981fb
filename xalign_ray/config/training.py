"""Training of a recipe: length, steps and optimizer; parallelism, checkpoints and tracking, which change no result"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from xalign_ray.config.fields import Float, Fraction, Frozen, Int, Positive, Uri, no_truth_value


class _Adam(Frozen):
    """Averages of the gradient and its square, and decoupled weight decay, none on biases and LayerNorm."""

    beta1: Annotated[Float, Field(ge=0, lt=1, description="decay of the average of the gradient")] = 0.9
    beta2: Annotated[Float, Field(ge=0, lt=1, description="decay of the average of its square")] = 0.999
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


_Steps = Annotated[Float, Field(ge=0), AfterValidator(lambda given: int(given) if given == int(given) else given)]


class ScheduleConfig(Frozen):
    """Linear warm-up to the peak, a stable part if asked for, then decay until the last step."""

    warmup_steps: Annotated[
        _Steps, Field(description="steps until the peak; below 1 a share of all steps, else their number")
    ] = 0
    decay_steps: Annotated[
        _Steps | None,
        Field(
            description="steps of decay at the end, after the peak; below 1 a share of all steps; null: all after the "
            "warm-up; 0: no decay"
        ),
    ] = None
    decay_type: Annotated[
        Literal["linear", "cosine", "1-sqrt"], Field(description="how the rate falls over the decay")
    ] = "linear"
    min_lr_ratio: Annotated[Fraction, Field(description="what the decay falls to at its end, of the peak")] = 0.0

    def steps_of(self, max_steps: int) -> int:
        """The warm-up of a run of `max_steps`, in whole steps."""
        return _whole(self.warmup_steps, max_steps)

    def decay_of(self, max_steps: int) -> int | None:
        """The decay of a run of `max_steps`, in whole steps; None: all after the warm-up."""
        return None if self.decay_steps is None else _whole(self.decay_steps, max_steps)


def _whole(steps: float, max_steps: int) -> int:
    return int(steps * max_steps if steps < 1 else steps)


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
        bool | None,
        Field(
            description="bf16 over fp32 master weights: DeepSpeed's, at ZeRO stage 0 torch's autocast; fp32 if false; "
            "null: bf16 on GPUs, fp32 on CPUs"
        ),
    ] = None
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
    eval_steps: Annotated[
        Int | None, Field(ge=0, description="steps between held-out losses; null: as retrieval_steps; 0: never")
    ] = 100
    retrieval_steps: Annotated[
        Int | None,
        Field(
            ge=0,
            description="steps between retrieval scores on dev pairs, or on data.tests without them; null: a tenth of "
            "the run, or more where scoring would take over a tenth of the training; 0: never",
        ),
    ] = None

    @model_validator(mode="after")
    def _has_a_length(self) -> TrainConfig:
        if not self.max_steps and not self.num_train_epochs:
            raise ValueError("its length is not given; set max_steps, or num_train_epochs")
        if not self.global_batch_size and not self.pairs_per_step:
            raise ValueError("the size of a step is not given; set global_batch_size, or pairs_per_step")
        return self

    def in_bf16(self, on_gpu: bool) -> bool:
        """Whether a device of that kind computes in bf16."""
        return on_gpu if self.bf16 is None else self.bf16

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


OURS_IN_DEEPSPEED = {  # keys of DeepSpeed's that follow from the recipe's own; the loop relies on them
    "train_batch_size": "train.global_batch_size",
    "train_micro_batch_size_per_gpu": "train.per_device_batch_size",
    "gradient_accumulation_steps": "train.per_device_batch_size",
    "gradient_clipping": "train.max_grad_norm",
    "optimizer": "train.optimizer",
    "scheduler": "train.schedule",
    "bf16": "train.bf16",
    "zero_optimization.stage": "parallel.zero_stage",
}
OURS_IN_SCALING = {  # options of Ray Train's ScalingConfig that follow from the recipe's own
    "num_workers": "parallel.workers",
    "use_gpu": "parallel.gpus_per_worker",
    "resources_per_worker": "parallel.cpus_per_worker",
}
TRACKED = ("http", "https", "file", "sqlite", "postgresql", "mysql", "mssql", "databricks", "databricks-uc", "uc")


def _one_gpu_or_none(given: Any) -> Any:
    """A process of several GPUs would leave all but one idle."""
    if isinstance(given, int | float) and not isinstance(given, bool) and given not in (0, 1):
        raise ValueError(
            f"a training process has one GPU or none, not {given:g}: NCCL refuses two processes on one GPU, and one "
            "process trains on one; raise parallel.workers for more"
        )
    return given


class ParallelConfig(Frozen):
    """Workers and ZeRO. Nothing here changes the result of a step, so nothing here is in the fingerprint.

    But `train.bf16` is, which follows `gpus_per_worker` where a recipe does not set it.
    """

    workers: Annotated[Positive, Field(description="training processes")] = 1
    min_workers: Annotated[
        Positive | None,
        Field(
            description="fewest training processes: the run goes on smaller when a node is lost, and grows again when "
            "there is room; always `workers` if null"
        ),
    ] = None
    zero_stage: Annotated[
        Literal[0, 1, 2, 3],
        BeforeValidator(no_truth_value),
        Field(description="what DeepSpeed splits over workers: nothing, optimizer states, gradients too, weights too"),
    ] = 2
    cpus_per_worker: Annotated[Float, Field(gt=0, description="logical CPUs that a training process reserves")] = 1
    gpus_per_worker: Annotated[
        Int,
        BeforeValidator(_one_gpu_or_none),
        Field(description="GPUs of a training process: 1, or 0 to train on CPUs"),
    ] = 0
    ray: dict[str, Any] = Field(
        default_factory=dict,
        description="further options of Ray Train's ScalingConfig, such as placement_strategy or label_selector",
    )
    nodes_timeout_s: Annotated[
        Float,
        Field(ge=0, description="how long to wait for nodes that an autoscaler brings; 0 refuses at once"),
    ] = 0
    data_cpus: Annotated[
        Float | None,
        Field(gt=0, description="CPUs of one streaming task; null is 1, and no tasks for a run that needs few rows"),
    ] = None
    data_resource: Annotated[
        str | None,
        Field(
            min_length=1,
            description="custom Ray resource of the nodes that run data tasks, on CPUs that no worker takes; null is "
            "any node",
        ),
    ] = None
    max_failures: Annotated[Int, Field(ge=0, description="restarts from the newest checkpoint before giving up")] = 3
    step_timeout_s: Annotated[
        Float,
        Field(gt=0, description="seconds after which a step is given up, and the worker named that holds it up"),
    ] = 1800
    deepspeed_overrides: dict[str, Any] = Field(
        default_factory=dict, description="deep-merged over the derived DeepSpeed dict"
    )

    @property
    def group_timeout_s(self) -> int:
        """Seconds that a rank waits for another in the process group: not less than a step may take.

        While one rank saves, others wait for it beyond any step: below half an hour nothing is given up.
        """
        return max(1800, math.ceil(self.step_timeout_s))

    @model_validator(mode="after")
    def _fewest_are_not_more(self) -> Self:
        if self.min_workers is not None and self.min_workers > self.workers:
            raise ValueError(f"min_workers {self.min_workers} is more than workers {self.workers}; lower it")
        return self

    @field_validator("ray")
    @classmethod
    def _workers_are_the_recipes(cls, given: dict[str, Any]) -> dict[str, Any]:
        for key, ours in OURS_IN_SCALING.items():
            if key in given:
                raise ValueError(f"{key} follows from the recipe: set {ours} instead")
        return given

    @field_validator("deepspeed_overrides")
    @classmethod
    def _says_nothing_twice(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Refuses keys that the recipe sets itself."""
        zero = given.get("zero_optimization", {})
        if not isinstance(zero, dict):
            raise ValueError("zero_optimization must be a block")
        for key, ours in OURS_IN_DEEPSPEED.items():
            if key in given or (key.startswith("zero_") and key.partition(".")[2] in zero):
                raise ValueError(f"{key} follows from the recipe: set {ours} instead")
        return given


class CheckpointConfig(Frozen):
    """When the run is saved, and how much of it is kept."""

    save_steps: Annotated[Positive, Field(description="steps between two checkpoints")] = 500
    save_total_limit: Annotated[Positive, Field(description="newest checkpoints that are kept")] = 2
    async_save: Annotated[
        bool,
        Field(description="write checkpoints while training goes on, from a copy of the state in the host's memory"),
    ] = True


class TrackConfig(Frozen):
    """Where numbers are followed to. The event log in the run folder is always written."""

    mlflow: Annotated[
        Uri, Field(description="a tracking URI; `sqlite` is mlflow.db in the output folder; `off` is none")
    ] = "sqlite"
    experiment: Annotated[str, Field(description="name of the MLflow experiment, W&B's project")] = "xalign"
    report_to: Annotated[
        tuple[Literal["tensorboard", "wandb", "trackio"], ...],
        Field(description="further trackers of the same numbers: tensorboard (in RUN/tensorboard), wandb, trackio"),
    ] = ()

    @field_validator("mlflow")
    @classmethod
    def _can_be_tracked(cls, uri: str) -> str:
        scheme, there, _ = uri.partition("://")
        if not uri or (there and scheme.partition("+")[0] not in TRACKED):
            raise ValueError(f"'{uri}' is no place that MLflow writes to: {', '.join(TRACKED)}, sqlite or off")
        return uri

    registered_model_name: Annotated[
        str | None, Field(min_length=1, description="MLflow's registered model that gets the export as a version")
    ] = None
    logging_steps: Annotated[
        Positive | None,
        Field(
            description="steps between two step events, where alone a GPU is waited for; null is 1 on CPUs, 10 on GPUs"
        ),
    ] = None
    profile_steps: Annotated[
        Int,
        Field(ge=0, description="steps of which profile/ gets a trace and a summary, from the fourth on; 0 is none"),
    ] = 0
