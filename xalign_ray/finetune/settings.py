"""What a fine-tuning is told, under the names of transformers' TrainingArguments."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FineTuning:
    """What a grid varies; the defaults are XTREME's for tagging.

    Attributes:
        learning_rate: peak, reached after a tenth of the steps.
        num_train_epochs: passes over the training examples; the best by development score is kept.
        train_batch_size: inputs a step.
        seed: of the head's first weights, the order of examples, and dropout.
        early_stopping_patience: epochs without a better development score after which training stops; never if None.
        max_train_samples: how many of the training file's examples are used, from the first; all if None.
    """

    learning_rate: float = 2e-5
    num_train_epochs: int = 10
    train_batch_size: int = 32
    seed: int = 0
    early_stopping_patience: int | None = None
    max_train_samples: int | None = None
