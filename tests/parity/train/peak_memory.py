"""Trains on full rows in a process of its own: `python -m tests.parity.train.peak_memory RECIPE` says the bytes.

What it says is the most memory that torch's tensors took at once, by the trace of all allocations.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from torch.profiler import ProfilerActivity, profile

from tests.parity.train.full_rows import train_on_full_rows
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import RunConfig


def peak(config: RunConfig, vocab_size: int) -> float:
    """Bytes of tensors at once while steps are taken; what the checkpoint at the end copies is left out."""
    begins: list[int] = []
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as trace:
        train_on_full_rows(config, vocab_size, lambda: begins.append(time.time_ns()))
    events = trace.profiler.kineto_results.events()  # type: ignore[union-attr]
    sizes = sorted((one.start_ns(), one.nbytes()) for one in events if one.name() == "[memory]")
    return float(np.cumsum([size for at, size in sizes if at < begins[-1]]).max())


if __name__ == "__main__":
    recipe = load_recipe(sys.argv[1]).config
    sys.stdout.write(f"{peak(recipe, recipe.data.tokenizer.vocab_size)}\n")  # type: ignore[union-attr]
