"""Trains in this process to the last step, as a run does."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from xalign_ray.config.schema import RunConfig
from xalign_ray.feed.batches import open_local
from xalign_ray.models.encoder import AlignedEncoder
from xalign_ray.shards.prepared import Prepared
from xalign_ray.train.checkpoint import Checkpoints
from xalign_ray.train.distributed import Workers
from xalign_ray.train.loop import Loop, build_model
from xalign_ray.work.job import Job


def train_here(workers: Workers, config: RunConfig, prepared: Prepared, folder: Path, facts: Any) -> AlignedEncoder:
    """Trains to the last step; the encoder in evaluation mode."""
    objectives = build_model(config, prepared, workers.device)
    with closing(Checkpoints(folder, facts["fingerprint"], config, workers, trust=False)) as saved:
        loop = Loop(Job(folder, facts, stop_asked=str), config, objectives, prepared, workers, saved, None, [])
        loop.run(open_local(prepared, config, 0, workers.rank))
    return objectives.eval().encoder
