"""Training on full rows of one example each, from a recipe alone: what plans of memory are held against."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch.profiler import ProfilerActivity, profile

from xalign_ray.config.schema import RunConfig
from xalign_ray.train.distributed import Workers
from xalign_ray.train.loop import train
from xalign_ray.work.job import Job


class AllMeasuredError(Exception):
    """The steps that are measured are taken."""


ZEROS = ("segment_ids", "language_ids", "cross_lingual", "no_room")


def peak(workers: Workers, config: RunConfig, vocab_size: int) -> float:
    """Bytes of torch's tensors at once in all steps but the last, which is not taken, by the trace of allocations."""
    begins: list[int] = []

    def end_at_the_last() -> None:
        begins.append(time.time_ns())
        if len(begins) == config.train.max_steps:
            raise AllMeasuredError

    gc.collect()  # what an earlier run has left is not freed in this trace
    allocations = profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True)
    with allocations as trace, suppress(AllMeasuredError):
        train_on_full_rows(workers, config, vocab_size, end_at_the_last)
    events = trace.profiler.kineto_results.events()  # type: ignore[union-attr]
    sizes = sorted((one.start_ns(), one.nbytes()) for one in events if one.name() == "[memory]")
    return float(np.cumsum([size for at, size in sizes if at < begins[-1]]).max())


def train_on_full_rows(workers: Workers, config: RunConfig, vocab_size: int, before_step: Callable[[], None]) -> None:
    """Takes the recipe's steps in this process; `before_step` is called when a step asks for rows."""
    batch = _rows(config, vocab_size)

    def batches(first: int, _rank: int, _workers: int) -> Generator[dict[str, np.ndarray], None, None]:
        for step in range(first, config.train.max_steps):
            before_step()
            position = step * config.train.global_batch_size + np.arange(config.train.global_batch_size)
            yield batch | {"position": position, "row_hash": position.astype(np.uint64)}

    prepared: Any = SimpleNamespace(
        languages=config.languages,
        vocab_size=vocab_size,
        special=SimpleNamespace(pad=0, cls=1, sep=2),
        new_rows={},
        held_out_missing={},
        tests=[],
        pairs=lambda _: None,
    )
    facts = {"recipe": "made", "fingerprint": "f" * 64}
    with tempfile.TemporaryDirectory() as folder:
        train(Job(Path(folder), facts), config, prepared, batches, workers)


def _rows(config: RunConfig, vocab_size: int) -> dict[str, np.ndarray]:
    """Full rows, with as many labels as the recipe asks for."""
    shape = (config.train.global_batch_size, config.data.max_seq_length)
    random = np.random.default_rng(0)
    batch = {name: np.zeros(shape, np.int32) for name in ZEROS}
    batch["input_ids"] = random.integers(5, vocab_size, shape, dtype=np.int32)
    batch["position_ids"] = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape)
    batch["example_ids"] = np.ones(shape, np.int32)
    asked = random.random(shape) < config.masking.mlm_probability
    batch["labels"] = np.where(asked, batch["input_ids"], -100).astype(np.int32)
    return batch | (_sides(batch) if any(loss.over_step for loss in config.objectives) else {})


def _sides(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A sentence pair of each row: its halves, each with padding behind it."""
    half = batch["input_ids"].shape[1] // 2
    given: dict[str, np.ndarray] = {"pair_hash": np.zeros(batch["input_ids"].shape, np.int64)}
    for side, first in (("query", 0), ("key", half)):
        for name in ("input_ids", "position_ids", "segment_ids", "language_ids", "example_ids"):
            given[f"{side}_{name}"] = np.zeros_like(batch[name])
        given[f"{side}_input_ids"][:, :half] = batch["input_ids"][:, first : first + half]
        given[f"{side}_position_ids"][:, :half] = np.arange(half)
        given[f"{side}_example_ids"][:, :half] = 1
    return given
