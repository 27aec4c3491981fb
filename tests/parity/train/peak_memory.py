"""Trains on full rows in a process of its own: `python -m tests.parity.train.peak_memory RECIPE` says MB.

What it says is the most memory that torch's tensors took at once, by the trace of all allocations.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.train.distributed import setup_workers
from xalign_ray.train.loop import train

STEPS = 3
ZEROS = ("segment_ids", "language_ids", "cross_lingual", "no_room")


def rows(config: RunConfig, vocab_size: int) -> dict[str, np.ndarray]:
    """Full rows of one example each, with as many labels as the recipe asks for."""
    shape = (config.train.global_batch_size, config.data.max_seq_length)
    random = np.random.default_rng(0)
    batch = {name: np.zeros(shape, np.int32) for name in ZEROS}
    batch["input_ids"] = random.integers(5, vocab_size, shape, dtype=np.int32)
    batch["position_ids"] = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape)
    batch["example_ids"] = np.ones(shape, np.int32)
    asked = random.random(shape) < config.masking.mlm_probability
    return batch | {"labels": np.where(asked, batch["input_ids"], -100).astype(np.int32)}


def peak(config: RunConfig, vocab_size: int) -> float:
    """Bytes of tensors at once while steps are taken; what the checkpoint at the end copies is left out."""
    batch, ends = rows(config, vocab_size), [0]

    def batches(first: int, _rank: int, _workers: int) -> Generator[dict[str, np.ndarray], None, None]:
        for step in range(first, STEPS):
            ends[0] = time.time_ns()
            position = step * config.train.global_batch_size + np.arange(config.train.global_batch_size)
            yield batch | {"position": position, "row_hash": position.astype(np.uint64)}

    prepared: Any = SimpleNamespace(
        languages=config.languages,
        vocab_size=vocab_size,
        special=SimpleNamespace(pad=0, cls=1, sep=2),
        new_rows={},
        held_out_missing={},
        pairs=lambda _: None,
    )
    torch.set_num_threads(1)
    facts = {"recipe": "made", "fingerprint": "f" * 64}
    with (
        tempfile.TemporaryDirectory() as folder,
        profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as trace,
    ):
        train(config, Path(folder), prepared, batches, setup_workers(config.parallel), facts)
    events = trace.profiler.kineto_results.events()  # type: ignore[union-attr]
    sizes = sorted((one.start_ns(), one.nbytes()) for one in events if one.name() == "[memory]")
    return float(np.cumsum([size for at, size in sizes if at < ends[0]]).max())


if __name__ == "__main__":
    recipe = load_recipe(sys.argv[1]).config
    sys.stdout.write(f"{peak(recipe, recipe.data.tokenizer.vocab_size)}\n")  # type: ignore[union-attr]
