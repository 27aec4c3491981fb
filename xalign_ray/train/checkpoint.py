"""Checkpoints of a run: written by all ranks, valid once the manifest is in place, found again whole or not at all.

A save has two halves. `begin` copies the state and leaves the writing to a thread of each rank; `publish`, as soon as
all ranks know that all have written, makes the checkpoint exist. What a rank's thread does needs no other rank, so
training's own messages between them are never crossed.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import CheckpointError, DataError
from xalign_ray.train.distributed import Workers
from xalign_ray.train.engine import STATE, Engine
from xalign_ray.train.snapshot import write_parts
from xalign_ray.train.trust import check_pickles
from xalign_ray.work.artifacts import MANIFEST, check_files, read_manifest, unfinished, write_manifest
from xalign_ray.work.run_folder import RunFolder

_NAME = re.compile(r"step_\d+")  # others, such as a copy that a user kept, are not ours
KEYS = ("step", "fingerprint", "zero_stage", "workers", "tokens", "files")  # of its manifest
_GOES_ON = "Training goes on from the checkpoint before it, of step {}."
_BEGINS = "There is no whole checkpoint before it: training begins at step 0."


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint: its folder and what its manifest says."""

    folder: Path
    manifest: dict[str, Any]
    trusted: bool = False  # the user said that its files may run code

    @property
    def step(self) -> int:
        """Optimizer steps that were finished when it was written."""
        return self.manifest["step"]

    @property
    def zero_stage(self) -> int:
        """The ZeRO stage that its files are in the layout of."""
        return self.manifest["zero_stage"]


@dataclass(frozen=True)
class Saved:
    """A checkpoint that has come to exist, and what it cost.

    still, writing: the time in which training stood still for it, and that from its copy until now (s).
    """

    step: int
    folder: Path
    still: float
    writing: float
    bytes: int


@dataclass(frozen=True)
class _Flight:
    """A checkpoint on its way to the disk."""

    step: int
    writing: Path
    facts: dict[str, Any]
    files: Future[dict[Path, str]]  # those of this rank, with their hashes
    copied: float
    still: float


def newest(
    run_folder: Path, fingerprint: str, step: int | None = None, trust: bool = False
) -> tuple[Checkpoint | None, list[str]]:
    """The newest whole checkpoint of a run folder, or that of a step; and a note on each damaged one passed over.

    Folders without a manifest do not exist; files are compared with the hashes in it.

    Raises:
        CheckpointError: a checkpoint was written by another recipe; or it could run code when it is read, and `trust`
            does not say that it may.
    """
    notes: list[str] = []
    for folder in _folders(run_folder):
        try:
            manifest = read_manifest(folder, *KEYS)
            if manifest is None or (step is not None and manifest["step"] != step):
                continue
            if manifest["fingerprint"] != fingerprint:
                raise CheckpointError(
                    f"{folder} was written by another recipe: its fingerprint is {manifest['fingerprint'][:8]}, this "
                    f"run's is {fingerprint[:8]}. Give another --out, or remove {run_folder} to start over."
                )
            check_files(folder, manifest["files"], "")
            if not trust:
                check_pickles(path for path in sorted((folder / STATE).rglob("*")) if path.is_file())
            goes_on = [f"{note} {_GOES_ON.format(manifest['step'])}" for note in notes]
            return Checkpoint(folder, manifest, trust), goes_on
        except DataError as damage:
            notes.append(str(damage).rstrip())
        except (ValueError, KeyError, TypeError):
            notes.append(f"{folder / MANIFEST} cannot be read.")
    return None, [f"{note} {_BEGINS}" for note in notes]


def _folders(run_folder: Path) -> Iterator[Path]:
    """Checkpoint folders, newest first, whole or not."""
    named = (path for path in RunFolder(run_folder).checkpoints.glob("step_*") if _NAME.fullmatch(path.name))
    return iter(sorted(named, key=_step, reverse=True))


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
        found, notes = self._workers.gather(self._look())[0]
        if isinstance(found, CheckpointError):
            raise found
        if found is not None and found.zero_stage != self._zero_stage:
            raise CheckpointError(
                f"{found.folder} was written with parallel.zero_stage {found.zero_stage}, this run has "
                f"{self._zero_stage}. Continue with --set parallel.zero_stage={found.zero_stage}."
            )
        return found, notes

    def _look(self) -> tuple[Checkpoint | CheckpointError | None, list[str]]:
        if self._workers.rank != 0:
            return None, []
        try:
            return newest(self._run_folder, self._fingerprint, trust=self._trust)
        except CheckpointError as error:
            return error, []

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
        self._together(step, writing, self._make_room(writing))
        parts = engine.snapshot(writing)
        copied = time.monotonic()
        files = self._thread.submit(write_parts, parts)
        self._flight = _Flight(step, writing, facts, files, copied, copied - began)

    @property
    def written(self) -> bool:
        """Whether this rank has done its part of a checkpoint that is on its way."""
        return self._flight is not None and self._flight.files.done()

    def publish(self) -> Saved:
        """Makes the checkpoint that is on its way exist, when all ranks have written their parts.

        Then those beyond `checkpoint.save_total_limit` are removed.

        Raises:
            CheckpointError: on all ranks, if one could not write; older checkpoints are untouched.
        """
        assert self._flight is not None
        flight, self._flight, began = self._flight, None, time.monotonic()
        self._together(flight.step, flight.writing, flight.files.exception())
        own = {path.relative_to(flight.writing).as_posix(): digest for path, digest in flight.files.result().items()}
        hashes = {name: digest for files in self._workers.gather(own) for name, digest in files.items()}
        folder = RunFolder(self._run_folder).checkpoint(flight.step)
        fields = {"step": flight.step, "fingerprint": self._fingerprint, "zero_stage": self._zero_stage}
        fields |= {"workers": self._workers.size, "files": hashes} | flight.facts
        self._together(flight.step, flight.writing, self._name(flight.writing, folder, fields))
        if self._workers.rank == 0:
            self._thread.submit(self._prune, flight.step)
        now, size = time.monotonic(), sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
        return Saved(flight.step, folder, flight.still + now - began, now - flight.copied, size)

    def close(self) -> None:
        """Waits until the thread has nothing left to do."""
        self._thread.shutdown()

    def _make_room(self, writing: Path) -> OSError | None:
        try:
            if self._workers.rank == 0:
                writing.mkdir(parents=True)
        except OSError as error:
            return error
        return None

    def _name(self, writing: Path, folder: Path, fields: dict[str, Any]) -> OSError | None:
        """Rank 0 writes the manifest, then gives the folder its name."""
        if self._workers.rank != 0:
            return None
        try:
            write_manifest(writing, fields)
            shutil.rmtree(folder, ignore_errors=True)  # a damaged one of the same step, passed over at the start
            writing.rename(folder)
        except OSError as error:
            return error
        return None

    def _together(self, step: int, writing: Path, problem: BaseException | None) -> None:
        """Raises on every rank if one of them has a problem, so that none waits for another."""
        said = [text for text in self._workers.gather(str(problem) if problem else None) if text]
        if not said:
            return
        if self._workers.rank == 0:
            shutil.rmtree(writing, ignore_errors=True)
        older = next((folder for folder in _folders(self._run_folder) if (folder / MANIFEST).is_file()), None)
        kept = f"{older} is whole and stays" if older else "There is no older one"
        raise CheckpointError(
            f"The checkpoint of step {step} cannot be written to {writing.parent}: {said[0]}. {kept}; make room and "
            "give the same command again: the run continues from its newest checkpoint."
        )

    def _prune(self, step: int) -> None:
        """Keeps the newest whole ones up to a step that was just saved: newer ones were damaged, and passed over."""
        folders = list(_folders(self._run_folder))
        whole = [folder for folder in folders if (folder / MANIFEST).is_file()]
        kept = [folder for folder in whole if _step(folder) <= step][: self._save_total_limit]
        for folder in whole:
            if folder not in kept:
                (folder / MANIFEST).unlink()  # from now on it does not exist, even if the removal is interrupted
        for folder in folders:
            if folder not in kept:
                shutil.rmtree(folder, ignore_errors=True)
