"""Makes a checkpoint of one number of workers loadable by another: DeepSpeed's universal format, made on demand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from xalign_ray.errors import CheckpointError
from xalign_ray.train.checkpoint import Checkpoint
from xalign_ray.train.convert import TRUSTED
from xalign_ray.train.distributed import Workers
from xalign_ray.train.engine import STATE, Engine
from xalign_ray.work.run_folder import RunFolder


def needs_resharding(found: Checkpoint | None, workers: Workers) -> bool:
    """Whether a checkpoint's optimizer state is cut for another number of workers; at stage 0 it is not cut."""
    return found is not None and found.zero_stage > 0 and found.manifest["workers"] != workers.size


def load_resharded(engine: Engine, found: Checkpoint, run_folder: Path, workers: Workers) -> None:
    """Converts a checkpoint next to the others, loads it on all ranks, and removes the copy.

    Args:
        engine: built with `universal=True`.

    Raises:
        CheckpointError: on all ranks, if the conversion failed.
    """
    folder = RunFolder(run_folder).checkpoints / ".resharded"
    problem = _convert(found, folder) if workers.rank == 0 else None
    problem = workers.gather(problem)[0]
    if problem:
        raise CheckpointError(
            f"{found.folder} was written by {found.manifest['workers']} workers and cannot be converted for "
            f"{workers.size}: {problem} Continue with --set parallel.workers={found.manifest['workers']}."
        )
    engine.load(folder, found.trusted)
    workers.barrier()
    if workers.rank == 0:
        shutil.rmtree(folder)


def _convert(found: Checkpoint, folder: Path) -> str | None:
    """Runs DeepSpeed's converter in a process of its own, as it starts more; returns what it says if it fails."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    command = [sys.executable, "-m", "xalign_ray.train.convert", str(found.folder / STATE), str(folder / STATE)]
    command += [TRUSTED] if found.trusted else []
    # Neither a GPU nor a rank of the job: it must not try to join.
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    done = subprocess.run(command, env=environment | {"DS_ACCELERATOR": "cpu"}, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2]
