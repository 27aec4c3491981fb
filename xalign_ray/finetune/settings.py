"""What a fine-tuning is told, under the names of transformers' TrainingArguments."""

from __future__ import annotations

from dataclasses import dataclass

from xalign_ray.errors import ConfigError

SCHEDULES = ("linear", "cosine", "polynomial", "constant", "constant_with_warmup")
_AT_LEAST = {
    "num_train_epochs": 1,
    "train_batch_size": 1,
    "per_device_train_batch_size": 1,
    "warmup_steps": 0,
    "weight_decay": 0,
    "max_seq_length": 8,
    "early_stopping_patience": 1,
    "max_train_samples": 1,
    "max_grad_norm": 0,
}


@dataclass(frozen=True, slots=True)
class FineTuning:
    """What a grid varies; the defaults are XTREME's for tagging.

    Attributes:
        learning_rate: its peak, above 0.
        num_train_epochs: passes over the training examples.
        train_batch_size: inputs an optimizer step.
        per_device_train_batch_size: inputs a forward pass, of which the rest of a step accumulates; the whole step at
            once if None.
        seed: of the head's first weights, the order of examples, and dropout.
        warmup_steps: below 1 a share of all steps, else their number.
        weight_decay: of matrices.
        lr_scheduler_type: the learning rate after warm-up: linear, cosine, polynomial, constant, or
            constant_with_warmup (without, constant has none).
        max_seq_length: longest input in pieces; the task's own length if None.
        early_stopping_patience: epochs without a better development score after which training stops; never if None.
        load_best_model_at_end: the best epoch by development score is kept; if False, the last.
        max_train_samples: how many of the training file's examples are used, from the first; all if None.
        max_grad_norm: L2 norm that gradients are clipped to; not clipped if 0.
        bf16: forward passes in bfloat16; if None, where the device is a GPU that has it.
    """

    learning_rate: float = 2e-5
    num_train_epochs: int = 10
    train_batch_size: int = 32
    per_device_train_batch_size: int | None = None
    seed: int = 0
    warmup_steps: float = 0.1
    weight_decay: float = 0.01
    lr_scheduler_type: str = "linear"
    max_seq_length: int | None = None
    early_stopping_patience: int | None = None
    load_best_model_at_end: bool = True
    max_train_samples: int | None = None
    max_grad_norm: float = 1.0
    bf16: bool | None = None

    def __post_init__(self) -> None:
        if self.learning_rate <= 0:
            raise ConfigError(f"learning_rate is {self.learning_rate}; it must be above 0.")
        for name, least in _AT_LEAST.items():
            if (value := getattr(self, name)) is not None and value < least:
                raise ConfigError(f"{name} is {value}; it must be at least {least}.")
        if self.lr_scheduler_type not in SCHEDULES:
            raise ConfigError(
                f"lr_scheduler_type is '{self.lr_scheduler_type}'; it must be one of {', '.join(SCHEDULES)}."
            )
        if self.train_batch_size % (self.per_device_train_batch_size or 1):
            raise ConfigError(
                f"train_batch_size is {self.train_batch_size}, no multiple of per_device_train_batch_size, which is "
                f"{self.per_device_train_batch_size}; give one that is."
            )


@dataclass(frozen=True, slots=True)
class Choice:
    """Which epoch was kept, and why."""

    epoch: int  # from 1; the first of equals
    development: tuple[float, ...]  # score after each epoch
