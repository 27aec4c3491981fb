"""How a recipe is run, and nothing that changes its result: how work is spread, when it is saved, where followed."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from xalign_ray.config.fields import Float, Frozen, Int, Positive, Uri, no_truth_value

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
SELECTOR = re.compile(r"!?([\w.-]+|in\([\w.-]+(, ?[\w.-]+)*\))")  # of a node's label, as Ray has it
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
    """How the work is spread. Nothing here changes what a step computes, so nothing here is in the fingerprint."""

    workers: Annotated[Positive, Field(description="training processes")] = 1
    min_workers: Annotated[
        Positive | None,
        Field(
            description="fewest training processes: the run goes on smaller when a node is lost, and grows again after "
            "a checkpoint when there is room; always `workers` if null"
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
    memory_per_worker: Annotated[
        Float | None,
        Field(gt=0, description="GiB of the host's memory that a training process reserves; none are if null"),
    ] = None
    placement_strategy: Annotated[
        Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"],
        Field(description="training processes on few nodes, or on many; strict: on one node, or one on each"),
    ] = "PACK"
    accelerator_type: Annotated[
        str | None,
        Field(
            min_length=1,
            description="GPU of the nodes that train, as `ray status` says it: H100, A100-80G; any if null",
        ),
    ] = None
    node_labels: Annotated[
        dict[str, str],
        Field(description="Ray's labels of the nodes that train (`ray start --labels`): a value, `!value`, `in(a,b)`"),
    ] = Field(default_factory=dict)
    nodes_timeout_s: Annotated[
        Float,
        Field(ge=0, description="how long to wait for nodes that an autoscaler brings; 0 refuses at once"),
    ] = 0
    data_cpus: Annotated[Float, Field(gt=0, description="CPUs of one streaming task")] = 0.5
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

    @model_validator(mode="after")
    def _fewest_are_not_more(self) -> Self:
        if self.min_workers is not None and self.min_workers > self.workers:
            raise ValueError(f"min_workers {self.min_workers} is more than workers {self.workers}; lower it")
        return self

    @field_validator("node_labels")
    @classmethod
    def _can_be_selected(cls, given: dict[str, str]) -> dict[str, str]:
        if wrong := [f"{key}: {value}" for key, value in given.items() if not SELECTOR.fullmatch(value)]:
            raise ValueError(f"'{wrong[0]}' selects no nodes; a label's value is v, !v, in(v,w) or !in(v,w)")
        return given

    @field_validator("deepspeed_overrides")
    @classmethod
    def _says_nothing_twice(cls, given: dict[str, Any]) -> dict[str, Any]:
        """What the recipe says itself stays as it says."""
        zero = given.get("zero_optimization", {})
        if not isinstance(zero, dict):
            raise ValueError("zero_optimization must be a block")
        for key, ours in OURS_IN_DEEPSPEED.items():
            if key in given or (key.startswith("zero_") and key.partition(".")[2] in zero):
                raise ValueError(f"{key} is the recipe's own to say: set {ours} instead")
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
    experiment: Annotated[str, Field(description="name of the MLflow experiment")] = "xalign"

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
        Positive, Field(description="steps between two step events; a GPU is waited for at these only")
    ] = 1
    profile_steps: Annotated[
        Int,
        Field(ge=0, description="steps of which profile/ gets a trace and a summary, from the fourth on; 0 is none"),
    ] = 0
