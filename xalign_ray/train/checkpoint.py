"""Checkpoints of a run: written by all ranks, found again, converted for another number of workers, made whole.

A save has two halves. `begin` copies the state and leaves the writing to a thread of each rank; `publish`, as soon as
all ranks know that all have written, makes the checkpoint exist. A rank's thread works without the other
ranks, so training's own messages between them are never crossed.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import CheckpointError, DataError
from xalign_ray.private.deepspeed import MODULE_STATE, convert_to_universal, join_weights, load_deepspeed
from xalign_ray.train.checkpoint_files import check_pickles, only_data, plain_path, write_parts
from xalign_ray.train.distributed import Workers
from xalign_ray.train.engine import STATE, Engine
from xalign_ray.work.artifacts import (
    MANIFEST,
    check_files,
    is_sealed,
    read_manifest,
    seal,
    unfinished,
    whole_manifest,
    write_manifest,
)
from xalign_ray.work.run_folder import RunFolder

_FOLDER = re.compile(r"step_\d+")  # others, such as a copy that a user kept, are not ours
KEYS = ("step", "fingerprint", "zero_stage", "workers", "tokens", "files")  # of its manifest
_GOES_ON = "Training goes on from the checkpoint before it, of step {}."
_BEGINS = "There is no whole checkpoint before it: training begins at step 0."


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint: its folder and manifest."""

    folder: Path
    manifest: dict[str, Any]
    trusted: bool = False  # by the user: its files may run code

    @property
    def step(self) -> int:
        """Optimizer steps that were finished when it was written."""
        return self.manifest["step"]

    @property
    def dev(self) -> float | None:
        """Its score on the dev pairs; None where it has none."""
        return self.manifest.get("dev")

    @property
    def zero_stage(self) -> int:
        """The ZeRO stage that its files are in the layout of."""
        return self.manifest["zero_stage"]


@dataclass(frozen=True)
class _Flight:
    """A checkpoint on its way to the disk."""

    step: int
    writing: Path
    facts: dict[str, Any]
    files: Future[dict[Path, str]]  # of this rank, with their hashes
    copied: float
    still: float


def newest(
    run_folder: Path, fingerprint: str, step: int | None = None, trust: bool = False, best: bool = False
) -> tuple[Checkpoint | None, list[str]]:
    """The newest whole checkpoint of a run folder, or that of a step; and a note on each damaged one passed over.

    With `best` that of the best score on the dev pairs, the newest of equal ones, where some have a score.

    Folders without a manifest do not exist; files are compared with the hashes in it.

    Raises:
        CheckpointError: a checkpoint was written by another recipe; or it could run code when it is read, and `trust`
            is not set.
    """
    notes: list[str] = []
    for folder in sorted(_folders(run_folder), key=_by_dev if best else lambda _: 0):
        try:
            manifest = read_manifest(folder, *KEYS)
            if manifest is None or (step is not None and manifest["step"] != step):
                continue
            if not is_sealed(manifest):
                raise DataError(f"{folder / MANIFEST} is damaged: its hash is not that of its fields.")
            if manifest["fingerprint"] != fingerprint:
                raise CheckpointError(
                    f"{folder} was written by another recipe: its fingerprint is {manifest['fingerprint'][:8]}, this "
                    f"run's is {fingerprint[:8]}. Give another --out, or remove {run_folder} to start over."
                )
            check_files(folder, manifest["files"], "")
            if not trust:
                check_pickles(path for path in sorted((folder / STATE).rglob("*")) if path.is_file())
            return Checkpoint(folder, manifest, trust), notes
        except DataError as damage:
            notes.append(str(damage).rstrip())
        except (ValueError, KeyError, TypeError):
            notes.append(f"{folder / MANIFEST} cannot be read.")
    return None, notes


def _folders(run_folder: Path) -> Iterator[Path]:
    """Checkpoint folders, newest first, whole or not."""
    named = (path for path in RunFolder(run_folder).checkpoints.glob("step_*") if _FOLDER.fullmatch(path.name))
    return iter(sorted(named, key=_step, reverse=True))


def _by_dev(folder: Path) -> tuple[float, int]:
    """Sorts the best score on the dev pairs to the front, the newest of equal ones first; the others behind."""
    dev = (whole_manifest(folder) or {}).get("dev")
    return math.inf if dev is None else -dev, -_step(folder)


def put_in_place(writing: Path, folder: Path, fields: dict[str, Any]) -> None:
    """Writes the manifest, then gives the folder its name."""
    write_manifest(writing, seal(fields))
    shutil.rmtree(folder, ignore_errors=True)  # a damaged one of the same step, passed over at the start
    writing.rename(folder)


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step_"))


class Checkpoints:
    """The checkpoints of one run, kept by all ranks together: each method is called by all of them."""

    def __init__(self, run_folder: Path, fingerprint: str, config: RunConfig, workers: Workers, trust: bool) -> None:
        self._trust = trust
        self._run_folder = run_folder
        self._fingerprint = fingerprint
        self._save_total_limit = config.checkpoint.save_total_limit
        self._zero_stage = config.parallel.zero_stage
        self._workers = workers
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._flight: _Flight | None = None

    def choose(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest whole checkpoint and the notes on damaged ones; rank 0 chooses for all.

        Raises:
            CheckpointError: it was written by another recipe, or at another ZeRO stage.
        """
        checkpoint, notes = None, []
        if self._workers.rank == 0:
            try:
                checkpoint, notes = newest(self._run_folder, self._fingerprint, trust=self._trust)
            except CheckpointError as error:
                checkpoint = error
        checkpoint, notes = self._workers.gather((checkpoint, notes))[0]
        then = _GOES_ON.format(checkpoint.step) if isinstance(checkpoint, Checkpoint) else _BEGINS
        notes = [f"{note} {then}" for note in notes]
        if isinstance(checkpoint, CheckpointError):
            raise checkpoint
        if checkpoint is not None and checkpoint.zero_stage != self._zero_stage:
            raise CheckpointError(
                f"{checkpoint.folder} was written with parallel.zero_stage {checkpoint.zero_stage}, this run has "
                f"{self._zero_stage}. Continue with --set parallel.zero_stage={checkpoint.zero_stage}."
            )
        return checkpoint, notes

    def begin(self, engine: Engine, step: int, facts: dict[str, Any]) -> None:
        """Copies the state after `step` finished steps and begins to write it; the one before must be published.

        Args:
            facts: further fields of the manifest.

        Raises:
            CheckpointError: on all ranks, if there is no place to write to; older checkpoints are untouched.
        """
        assert self._flight is None
        began = time.monotonic()
        folder = RunFolder(self._run_folder).checkpoint(step)
        writing = Path(self._workers.gather(str(unfinished(folder)))[0])  # rank 0's name, where all write
        self._together(step, writing, partial(writing.mkdir, parents=True), first_rank_only=True)
        parts = engine.snapshot(writing)
        copied = time.monotonic()
        files = self._thread.submit(write_parts, parts)
        self._flight = _Flight(step, writing, facts, files, copied, copied - began)

    @property
    def written(self) -> bool:
        """Whether this rank has done its part of a checkpoint that is on its way."""
        return self._flight is not None and self._flight.files.done()

    def publish(self) -> tuple[int, Path, dict[str, float]]:
        """Makes the checkpoint that is on its way exist, when all ranks have written their parts.

        Then those beyond `checkpoint.save_total_limit` are removed, but for the best on the dev pairs.

        Returns:
            Its step, its folder, and its cost: training's pause for it, the time since its copy, and, on rank 0,
            its size.

        Raises:
            CheckpointError: on all ranks, if one could not write; older checkpoints are untouched.
        """
        assert self._flight is not None
        flight, self._flight, began = self._flight, None, time.monotonic()
        files = self._together(flight.step, flight.writing, flight.files.result)
        our_hashes = {path.relative_to(flight.writing).as_posix(): digest for path, digest in files.items()}
        hashes = {name: digest for files in self._workers.gather(our_hashes) for name, digest in files.items()}
        folder = RunFolder(self._run_folder).checkpoint(flight.step)
        fields = {"step": flight.step, "fingerprint": self._fingerprint, "zero_stage": self._zero_stage}
        fields |= {"workers": self._workers.size, "files": hashes} | flight.facts
        name = partial(put_in_place, flight.writing, folder, fields)
        self._together(flight.step, flight.writing, name, first_rank_only=True)
        if self._workers.rank == 0:
            self._thread.submit(self._prune, flight.step)
        now = time.monotonic()
        # On rank 0, which logs it: many ranks would each look up the files of all, which they may not see yet.
        size = 0 if self._workers.rank else sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
        still, writing = flight.still + now - began, now - flight.copied
        cost = {"checkpoint/save_s": still, "checkpoint/write_s": writing, "checkpoint/size_mb": size / 1e6}
        return flight.step, folder, cost

    def close(self) -> None:
        """Waits until the thread has nothing left to do."""
        self._thread.shutdown()

    def _together(self, step: int, writing: Path, work: Callable[[], Any], first_rank_only: bool = False) -> Any:
        """Does work on every rank; raises on all what one of them meets, so that none waits for another."""
        done, problem = None, ""
        try:
            if self._workers.rank == 0 or not first_rank_only:
                done = work()
        except Exception as error:
            problem = str(error) or type(error).__name__
        problems = [text for text in self._workers.gather(problem) if text]
        if not problems:
            return done
        if self._workers.rank == 0:
            shutil.rmtree(writing, ignore_errors=True)
        older = next((folder for folder in _folders(self._run_folder) if (folder / MANIFEST).is_file()), None)
        remaining = f"{older} is whole and stays" if older else "There is no older one"
        raise CheckpointError(
            f"The checkpoint of step {step} cannot be written to {writing.parent}: {problems[0]}. {remaining}; make "
            "room and rerun the same command: the run resumes from its newest checkpoint."
        )

    def _prune(self, step: int) -> None:
        """Keeps the newest and the best whole ones up to a step just saved: newer ones were damaged, passed over."""
        folders = list(_folders(self._run_folder))
        finished = [folder for folder in folders if (folder / MANIFEST).is_file()]
        earlier = [folder for folder in finished if _step(folder) <= step]
        keep = {*earlier[: self._save_total_limit], *sorted(earlier, key=_by_dev)[:1]}
        for folder in finished:
            if folder not in keep:
                (folder / MANIFEST).unlink()  # from now on it does not exist, even if the removal is interrupted
        for folder in folders:
            if folder not in keep:
                shutil.rmtree(folder, ignore_errors=True)


def consolidate(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """The state dict of the module that was trained, parameters and buffers by name.

    Stage 0 keeps the module whole in one file, which DeepSpeed's converter does not read; stages 1-3 keep the fp32
    weights as flat parts in the optimizer's files.
    """
    if checkpoint.zero_stage == 0:
        file = checkpoint.folder / STATE / MODULE_STATE
        with only_data(checkpoint.trusted, allowed=()):
            state = torch.load(file, map_location="cpu", weights_only=not checkpoint.trusted)["module"]
    else:
        load_deepspeed(on_gpu=False)
        with only_data(checkpoint.trusted), plain_path(checkpoint.folder) as folder:
            state = join_weights(folder, STATE)
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in state.items()}


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
    problem = engine.not_resharded or (_convert(found, folder) if workers.rank == 0 else None)
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
    """Runs DeepSpeed's converter in another process, as it starts more; returns its message if it fails."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    command = [sys.executable, "-m", "xalign_ray.train.checkpoint", str(found.folder / STATE), str(folder / STATE)]
    command += [TRUSTED] if found.trusted else []
    # Neither a GPU nor a rank of the job: it must not try to join.
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    done = subprocess.run(command, env=environment | {"DS_ACCELERATOR": "cpu"}, capture_output=True, text=True)
    if done.returncode < 0:  # without a last word
        return f"its process was killed (signal {-done.returncode}), as the system does for want of memory."
    return None if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2] or f"exit {done.returncode}."


TRUSTED = "trusted"


def main() -> int:
    """`python -m xalign_ray.train.checkpoint FROM TO [trusted]`; a refusal is a sentence on stderr."""
    source, target, *trusted = sys.argv[1:]
    load_deepspeed(on_gpu=False)
    try:
        with (
            only_data(trusted == [TRUSTED]),
            plain_path(Path(source)) as folder,
            plain_path(Path(target).parent) as parent,  # the target itself is made by the converter
        ):
            convert_to_universal(folder, parent / Path(target).name)
    except CheckpointError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
