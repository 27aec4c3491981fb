"""Training of a recipe: length, steps and optimizer; parallelism, checkpoints and tracking, which change no result"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, ValidationInfo, field_validator

from xalign_ray.config.fields import (
    Float,
    Fraction,
    Frozen,
    Int,
    NonNegative,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    Uri,
    no_truth_value,
)

Parts = tuple[str, ...]
_PART = re.compile(r"all|head|embeddings|new_rows|layers:[1-9]\d*-(?:[1-9]\d*)?")


class _Adam(Frozen):
    """Averages of the gradient and its square, and decoupled weight decay, none on biases and LayerNorm."""

    beta1: Annotated[Float, Field(ge=0, lt=1)] = 0.9
    """decay of the average of the gradient"""
    beta2: Annotated[Float, Field(ge=0, lt=1)] = 0.999
    """decay of the average of its square"""
    epsilon: PositiveFloat = 1e-6
    """added to the root of that"""
    weight_decay: NonNegativeFloat = 0.01
    """decoupled; none on biases and LayerNorm"""
    rates: dict[Annotated[str, Field(pattern=f"^({_PART.pattern})$")], PositiveFloat] = Field(default_factory=dict)
    """factors of the learning rate by part, such as {embeddings: 20}: parts as in trainable; that of new_rows holds
    where they alone move"""


class AdamW(_Adam):
    """Adam with decoupled weight decay."""

    kind: Literal["adamw"] = "adamw"
    learning_rate: PositiveFloat = 1e-4
    """at the peak of the schedule"""


class Lamb(_Adam):
    """LAMB: Adam's direction with decay, scaled to each tensor's own norm; ZeRO stages 0 to 2."""

    kind: Literal["lamb"] = "lamb"
    learning_rate: PositiveFloat = 1.6e-3
    """at the peak of the schedule"""


def _optimizer_kind(given: Any) -> Any:
    """The tag of an optimizer block: AdamW where a recipe names none."""
    return given.get("kind", "adamw") if isinstance(given, Mapping) else getattr(given, "kind", None)


Optimizer = Annotated[Annotated[AdamW, Tag("adamw")] | Annotated[Lamb, Tag("lamb")], Discriminator(_optimizer_kind)]


_Steps = Annotated[Float, Field(ge=0), AfterValidator(lambda given: int(given) if given == int(given) else given)]


class ScheduleConfig(Frozen):
    """Linear warm-up to the peak, a stable part if asked for, then decay until the last step."""

    warmup_steps: _Steps = 0
    """steps until the peak; below 1 a share of all steps, else their number"""
    decay_steps: _Steps | None = None
    """steps of decay at the end, after the peak; below 1 a share of all steps; null: all after the warm-up; 0: no
    decay"""
    decay_type: Literal["linear", "cosine", "1-sqrt"] = "linear"
    """how the rate falls over the decay"""
    min_lr_ratio: Fraction = 0.0
    """the rate at the end of the decay, as a share of the peak"""

    def steps_of(self, max_steps: int) -> int:
        """The warm-up of a run of `max_steps`, in whole steps."""
        return _whole(self.warmup_steps, max_steps)

    def decay_of(self, max_steps: int) -> int | None:
        """The decay of a run of `max_steps`, in whole steps; None: all after the warm-up."""
        return None if self.decay_steps is None else _whole(self.decay_steps, max_steps)


def _whole(steps: float, max_steps: int) -> int:
    return int(steps * max_steps if steps < 1 else steps)


def _named_parts(given: Any) -> str | Parts:
    """The names of parts in one form, of one its name: `{layers: 6-}` is `layers:6-`."""
    parts: list[str] = []
    for part in given if isinstance(given, list | tuple) and given else (given,):
        if isinstance(part, Mapping) and set(part) == {"layers"}:
            part = f"layers:{part['layers']}"
        if not isinstance(part, str) or not _PART.fullmatch(part):
            raise ValueError(
                f"'{part}' is no part of a model: name all, head, embeddings, new_rows or layers:6- (from a layer on; "
                "layers:2-4 for some, counted from 1)"
            )
        parts.append(part)
    return parts[0] if len(parts) == 1 else tuple(parts)


def _trainable(given: Any) -> str | Parts | tuple[tuple[float, str | Parts], ...]:
    """Parts, of one its name; or phases, each [first step, parts]."""
    if not isinstance(given, list | tuple) or not given or not all(isinstance(phase, list | tuple) for phase in given):
        return _named_parts(given)
    if not all(len(phase) == 2 and isinstance(phase[0], int | float) for phase in given):
        raise ValueError("phases are a list of [first step, parts]")
    firsts = [first for first, _ in given]
    if firsts[:1] != [0] or any(later <= earlier for earlier, later in pairwise(firsts)):
        raise ValueError("the first steps of phases begin with 0 and increase")
    return tuple((first, _named_parts(parts)) for first, parts in given)


Trainable = Annotated[str | Parts | tuple[tuple[_Steps, str | Parts], ...], BeforeValidator(_trainable)]


class TrainConfig(Frozen):
    """How long, how many rows a step, and how weights move.

    A row holds several pairs. Where a length is given in epochs or in pairs, `prepare` counts the pairs, and the steps
    and rows that follow (docs/explanation/methods.md, Pairs and rows) are written into the run's config.yaml.
    """

    max_steps: NonNegative = 0
    """optimizer steps of the run; 0: from num_train_epochs"""
    num_train_epochs: NonNegativeFloat = 0
    """passes over the pairs, or over the text where no stream reads pairs; counted only if max_steps is 0"""
    global_batch_size: NonNegative = 0
    """rows of a step, over all workers; 0: from pairs_per_step"""
    pairs_per_step: NonNegative = 0
    """pairs of a step, over all workers, on average: so many rows as hold them; counted only if global_batch_size is
    0"""
    per_device_batch_size: Positive = 32
    """the most rows in one forward pass of a worker"""
    optimizer: Optimizer = AdamW()
    """how weights move"""
    schedule: ScheduleConfig = ScheduleConfig()
    trainable: Trainable = "all"
    """parts that move: all, head (of the masked LM), embeddings, new_rows (of data.tokenizer.new_pieces), layers:6-
    (counted from 1), or a list; or phases, [[0, new_rows], [0.1, all]], whose first steps are numbers or shares of all
    steps. What losses hold themselves always moves"""
    bf16: bool | None = None
    """bf16 over fp32 master weights: DeepSpeed's, at ZeRO stage 0 torch's autocast; fp32 if false; null: bf16 on
    GPUs, fp32 on CPUs"""
    tf32: bool = True
    """TF32 in the matrix products of fp32 on GPUs that have it"""
    attention: Literal["auto", "dense", "varlen"] = "auto"
    """how the examples of a row are kept apart: by a mask over the row, or, without its padding, by kernels for
    variable lengths; auto is varlen wherever it is faster"""
    gradient_checkpointing: bool = False
    """make the activations of each layer again going backward instead of keeping them"""
    torch_compile: bool = False
    """run the encoder's layers through torch.compile; minutes at the start"""
    max_grad_norm: NonNegativeFloat = 1.0
    """0 is no clipping"""
    eval_steps: NonNegative | None = 100
    """steps between held-out losses; null: as retrieval_steps; 0: never"""
    retrieval_steps: NonNegative | None = None
    """steps between retrieval scores on dev pairs, or on data.tests without them; null: a tenth of the run, or more
    where scoring would take over a tenth of the training; 0: never"""

    def _faults(self) -> Iterator[str]:
        if not self.max_steps and not self.num_train_epochs:
            yield "its length is not given; set max_steps, or num_train_epochs"
        if not self.global_batch_size and not self.pairs_per_step:
            yield "the size of a step is not given; set global_batch_size, or pairs_per_step"
        parts = [parts for _, parts in self.phases]
        if self.optimizer.kind == "lamb" and any("new_rows" in named for named in parts):
            yield "trainable new_rows with LAMB is refused: it scales a step to the norm of the whole table; take adamw"
        moved = [bool({"all", "embeddings"} & {*named}) for named in parts]
        if any(moved[number] and "new_rows" in later for number in range(len(parts)) for later in parts[number + 1 :]):
            yield "trainable: a phase of new_rows comes before those in which all rows move"

    @property
    def head_first(self) -> bool:
        """Whether the masked-LM head moves alone at first: a new one then harms no other weights."""
        return self.phases[0][1] == ("head",)

    @property
    def phases(self) -> tuple[tuple[int, Parts], ...]:
        """The first step of each phase, and the parts that move in it."""
        phases: Any = self.trainable if isinstance(self.trainable[0], tuple) else ((0, self.trainable),)
        return tuple(
            (_whole(first, self.max_steps), (parts,) if isinstance(parts, str) else parts) for first, parts in phases
        )

    def phase_at(self, step: int) -> int:
        """The number of the phase of a step, counted from 0."""
        return max(number for number, (first, _) in enumerate(self.phases) if first <= step)

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


OURS = {  # options of Ray Train's ScalingConfig and of DeepSpeed that follow from the recipe's own keys
    "ray": {
        "num_workers": "parallel.workers",
        "use_gpu": "parallel.gpus_per_worker",
        "resources_per_worker": "parallel.cpus_per_worker",
    },
    "deepspeed_overrides": {
        "train_batch_size": "train.global_batch_size",
        "train_micro_batch_size_per_gpu": "train.per_device_batch_size",
        "gradient_accumulation_steps": "train.per_device_batch_size",
        "gradient_clipping": "train.max_grad_norm",
        "optimizer": "train.optimizer",
        "scheduler": "train.schedule",
        "bf16": "train.bf16",
        "zero_optimization.stage": "parallel.zero_stage",
    },
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

    workers: Positive = 1
    """training processes"""
    min_workers: Positive | None = None
    """fewest training processes: the run goes on smaller when a node is lost, and grows again when there is room;
    always `workers` if null"""
    zero_stage: Annotated[Literal[0, 1, 2, 3], BeforeValidator(no_truth_value)] = 2
    """what DeepSpeed splits over workers: nothing, optimizer states, gradients too, weights too"""
    cpus_per_worker: PositiveFloat = 1
    """logical CPUs that a training process reserves"""
    gpus_per_worker: Annotated[Int, BeforeValidator(_one_gpu_or_none)] = 0
    """GPUs of a training process: 1, or 0 to train on CPUs"""
    ray: dict[str, Any] = Field(default_factory=dict)
    """further options of Ray Train's ScalingConfig, such as placement_strategy or label_selector"""
    nodes_timeout_s: NonNegativeFloat = 0
    """how long to wait for nodes that an autoscaler brings; 0 refuses at once"""
    data_cpus: PositiveFloat | None = None
    """CPUs of one streaming task; null is 1, and no tasks for a run that needs few rows"""
    data_resource: Annotated[str | None, Field(min_length=1)] = None
    """custom Ray resource of the nodes that run data tasks, on CPUs that no worker takes; null is any node"""
    max_failures: NonNegative = 3
    """restarts from the newest checkpoint before giving up"""
    step_timeout_s: PositiveFloat = 1800
    """seconds after which a step is given up, and the worker named that holds it up"""
    deepspeed_overrides: dict[str, Any] = Field(default_factory=dict)
    """deep-merged over the derived DeepSpeed dict"""

    @property
    def group_timeout_s(self) -> int:
        """Seconds that a rank waits for another in the process group: not less than a step may take.

        While one rank saves, others wait for it beyond any step: below half an hour nothing is given up.
        """
        return max(1800, math.ceil(self.step_timeout_s))

    def _faults(self) -> Iterator[str]:
        if self.min_workers is not None and self.min_workers > self.workers:
            yield f"min_workers {self.min_workers} is more than workers {self.workers}; lower it"

    @field_validator("ray", "deepspeed_overrides")
    @classmethod
    def _follow_from_the_recipe(cls, given: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Refuses keys that the recipe sets itself."""
        for name, ours in OURS[str(info.field_name)].items():
            inside, (*above, last) = given, name.split(".")
            for key in above:
                inside = inside.get(key, {})
            if not isinstance(inside, dict):
                raise ValueError(f"{'.'.join(above)} must be a block")
            if last in inside or name in given:
                raise ValueError(f"{name} follows from the recipe: set {ours} instead")
        return given


class CheckpointConfig(Frozen):
    """When the run is saved, and how much of it is kept."""

    save_steps: Positive = 500
    """steps between two checkpoints"""
    save_total_limit: Positive = 2
    """newest checkpoints that are kept"""
    async_save: bool = True
    """write checkpoints while training goes on, from a copy of the state in the host's memory"""


class TrackConfig(Frozen):
    """Where numbers are followed to. The event log in the run folder is always written."""

    mlflow: Uri = "sqlite"
    """a tracking URI; `sqlite` is mlflow.db in the output folder; `off` is none"""
    experiment: str = "xalign"
    """name of the MLflow experiment, W&B's project"""
    report_to: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """further trackers of the same numbers: tensorboard (in RUN/tensorboard), wandb, trackio"""

    @field_validator("mlflow")
    @classmethod
    def _can_be_tracked(cls, uri: str) -> str:
        scheme, there, _ = uri.partition("://")
        if not uri or (there and scheme.partition("+")[0] not in TRACKED):
            raise ValueError(f"'{uri}' is no place that MLflow writes to: {', '.join(TRACKED)}, sqlite or off")
        return uri

    logging_steps: Positive | None = None
    """steps between two step events, where alone a GPU is waited for; null is 1 on CPUs, 10 on GPUs"""
    profile_steps: NonNegative = 0
    """steps of which profile/ gets a trace and a summary, from the fourth on; 0 is none"""
