"""Trains in this process, and what the live model then computes: the peer of what was exported."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from xalign_ray.config.schema import RunConfig
from xalign_ray.feed.batches import open_local
from xalign_ray.models.encoder import AlignedEncoder
from xalign_ray.shards.prepared import Prepared
from xalign_ray.train.checkpoint import Checkpoints
from xalign_ray.train.distributed import Workers
from xalign_ray.train.loop import Loop, build_model
from xalign_ray.train.step import tensors
from xalign_ray.work.job import Job


def train_here(workers: Workers, config: RunConfig, prepared: Prepared, folder: Path, facts: Any) -> AlignedEncoder:
    """Trains to the last step; the encoder in evaluation mode."""
    objectives = build_model(config, prepared, workers.device)
    with closing(Checkpoints(folder, facts["fingerprint"], config, workers, trust=False)) as saved:
        loop = Loop(Job(folder, facts, stop_asked=str), config, objectives, prepared, workers, saved, None, [])
        loop.run(open_local(prepared, config, 0, workers.rank))
    return objectives.eval().encoder


def batch_of_step(workers: Workers, config: RunConfig, prepared: Prepared, step: int) -> dict[str, Tensor]:
    """The first rank's share of a step."""
    return tensors(next(open_local(prepared, config, step, 0)), workers.device)


@torch.no_grad()
def compute(encoder: AlignedEncoder, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Hidden states [B, L, D] and logits [B, L, V]."""
    hidden = encoder.encode(batch)
    logits = encoder.predict(hidden.flatten(0, 1), batch["language_ids"].flatten()).view(*hidden.shape[:2], -1)
    return hidden, logits
