"""The values that decide what a run learns, in words: for the plan, the start line, the report and the model card."""

from __future__ import annotations

from xalign_ray.config.scheduled import Scheduled
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.training import ScheduleConfig


def deciding_values(config: RunConfig, dropout: str) -> dict[str, str]:
    """Start, learning rate, batch, dropout and losses by name.

    Args:
        dropout: in words; of a continued encoder its config.json has it.
    """
    train = config.train
    rate = f"{train.optimizer.learning_rate:g} at most ({train.optimizer.kind}), {_schedule(train.schedule)}"
    return {
        "start": config.model.init_from or f"from scratch ({config.model.family})",
        "learning rate": rate,
        "batch": batch_in_words(config),
        "dropout": dropout,
        "losses": ", ".join(f"{weight_in_words(loss.weight)} {loss.kind}" for loss in config.objectives),
    }


def batch_in_words(config: RunConfig) -> str:
    """Rows and token positions of a step, as far as they are known without the data."""
    length, rows = config.data.max_seq_length, config.train.global_batch_size
    if not rows:
        return f"rows of {length:,} tokens, as many as hold {config.train.pairs_per_step:,} pairs"
    return f"{rows:,} rows of {length:,} tokens = {rows * length:,} token positions a step"


def weight_in_words(weight: Scheduled) -> str:
    """A weight, or the values that it moves through."""
    return " -> ".join(f"{value:g}" for _, value in weight) if isinstance(weight, tuple) else f"{weight:g}"


def _schedule(schedule: ScheduleConfig) -> str:
    warmup = schedule.warmup_steps
    steps = f"{warmup:.0%} of all steps" if 0 < warmup < 1 else f"{warmup:,} steps"
    return f"{steps} of warm-up, then linear to 0"
