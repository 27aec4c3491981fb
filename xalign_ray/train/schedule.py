"""The learning rate as a pure function of the step: nothing to save, nothing to restore."""

from __future__ import annotations


def learning_rate(step: int, steps: int, warmup_steps: float, peak: float) -> float:
    """Linear warm-up to the peak, then linear decay towards zero.

    Args:
        step: the step to take, counting from 0.
        steps: all steps of the run; the rate would be 0 at `step == steps`.
        warmup_steps: steps until the peak is reached; the peak is used first at `step == warmup_steps`.
        peak: the highest rate.
    """
    if step < warmup_steps:
        return peak * (step + 1) / (warmup_steps + 1)
    return peak * (steps - step) / (steps - warmup_steps)
