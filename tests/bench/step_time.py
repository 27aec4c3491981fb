"""Trains on full rows in a process of its own: `python -m tests.bench.step_time RECIPE...` says CPU seconds.

Of each recipe in turn, and again in each round, the CPU time of its fastest step: what other processes add is left out.
"""

from __future__ import annotations

import sys
import time
from itertools import pairwise

from tests.parity.train.full_rows import train_on_full_rows
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import RunConfig

ROUNDS = 4


def fastest(config: RunConfig, vocab_size: int) -> float:
    """CPU seconds of the fastest step but the first."""
    begins: list[float] = []
    train_on_full_rows(config, vocab_size, lambda: begins.append(time.process_time()))
    return min(after - before for before, after in list(pairwise(begins))[1:])


if __name__ == "__main__":
    recipes = [load_recipe(name).config for name in sys.argv[1:]]
    rounds = [[fastest(one, one.data.tokenizer.vocab_size) for one in recipes] for _ in range(ROUNDS)]  # type: ignore[union-attr]
    sys.stdout.write(" ".join(f"{min(times)}" for times in zip(*rounds, strict=True)) + "\n")
