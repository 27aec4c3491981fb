"""The training loop: steps from the resumed one to the last, with events, held-out losses and checkpoints between them.

It knows neither Ray nor where its rows come from: the same loop runs under Ray Train, under torchrun and in a process.
"""

from __future__ import annotations

import gc
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch.profiler import record_function

from xalign_ray.config.identity import INPUTS, code_hashes
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import LossError, StoppedError, TrainingError
from xalign_ray.models.encoder import build_encoder
from xalign_ray.models.export import rows_to_make
from xalign_ray.objectives.combine import EncoderWithLosses
from xalign_ray.shards.prepared import Prepared
from xalign_ray.track.events import last_step
from xalign_ray.train.checkpoint import Checkpoint, Checkpoints, load_resharded, needs_resharding
from xalign_ray.train.distributed import Workers
from xalign_ray.train.engine import Engine, describe, set_up
from xalign_ray.train.metrics import Delivered, Spent, host_metrics
from xalign_ray.train.profile import StepProfile
from xalign_ray.train.scoring import Scoring
from xalign_ray.train.step import RankBatch, Stepper, raise_on_all_ranks
from xalign_ray.train.watch import COMPUTES, WAITS, StallWatch
from xalign_ray.work import process
from xalign_ray.work.job import Job
from xalign_ray.work.run_folder import RunFolder

DATA_EVERY_S = 30  # between two data events: a number for each of a hundred languages is not for every step


class Batches(Protocol):
    """A rank's batches of consecutive steps, and what ends their making."""

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]: ...
    def close(self) -> None: ...


OpenBatches = Callable[[int, int, int], Batches]


def train(job: Job, config: RunConfig, prepared: Prepared, open_batches: OpenBatches, workers: Workers) -> None:
    """Trains until the recipe's last step is done and saved, from the newest whole checkpoint if there is one.

    Args:
        job: of the run folder, where events.jsonl and checkpoints/ are, on a disk that all ranks see. Its identity has
            `recipe` and `fingerprint`. All ranks stop when one gets a signal.
        config: the recipe.
        prepared: the prepared data.
        open_batches: (first step, rank, workers) -> this rank's batches of consecutive steps, closed at the end.
        workers: this process among the others.

    Raises:
        TrainingError: a loss is not finite, or the feed is wrong.
        StoppedError: the job was asked to stop; the step in progress is saved.
        LockError: the run folder has become another job's; nothing was saved.
        CheckpointError: the newest checkpoint is not this run's, or one cannot be written.
    """
    if job.identity.get(INPUTS, {}).get("code", code := code_hashes(config)) != code:
        raise TrainingError(
            f"Files of {', '.join(code)} changed since the command started, or are others on this node. Rerun it: a "
            "new run begins."
        )
    fingerprint = job.identity["fingerprint"]
    saved = Checkpoints(job.folder, fingerprint, config, workers, job.trust)
    with process.heeded(), closing(saved) as checkpoints:
        checkpoint, notes = checkpoints.choose()
        first = checkpoint.step if checkpoint else 0
        # Opened first: batches are made while the model is set up.
        opened = closing(open_batches(first, workers.rank, workers.size)) if first < config.train.max_steps else None
        with opened or nullcontext(()) as batches:
            model = build_model(config, prepared, workers.device)
            Loop(job, config, model, prepared, workers, checkpoints, checkpoint, notes).run(iter(batches))


def build_model(config: RunConfig, prepared: Prepared, device: torch.device | None = None) -> EncoderWithLosses:
    """The recipe's encoder with its losses, to be run by a device if one is given; equal weights on every rank."""
    torch.manual_seed(config.seed % 2**63)
    new_rows, start_rows = rows_to_make(config.data.tokenizer, prepared)
    encoder = build_encoder(
        config.model,
        prepared.vocab_size,
        prepared.languages,
        config.data.max_seq_length,
        prepared.special.pad,
        new_rows,
        config.needs_head,
        start_rows,
    )
    if device is not None:
        set_up(encoder, config.train, device)
    return EncoderWithLosses(encoder, config.objectives, prepared.pairs("trained"), config.seed, prepared.special)


class Loop:
    """One attempt at a run."""

    def __init__(
        self,
        job: Job,
        config: RunConfig,
        model: EncoderWithLosses,
        prepared: Prepared,
        workers: Workers,
        checkpoints: Checkpoints,
        found: Checkpoint | None,
        notes: list[str],
    ) -> None:
        self._job = job
        self._config = config
        self._prepared = prepared
        self._workers = workers
        encoder = model.encoder
        self._execution = describe(config.train, workers.device, encoder.family.dense_only)
        self._checkpoints, self._found, self._notes = checkpoints, found, notes
        self._engine = Engine(model, config, workers, universal=needs_resharding(self._found, workers))
        if self._found and needs_resharding(self._found, workers):
            load_resharded(self._engine, self._found, job.folder, workers)
        elif self._found:
            self._engine.load(self._found.folder, self._found.trusted)
        self._stepper = Stepper(self._engine, model, config, workers)
        self._scoring = Scoring(self._engine, model, config, prepared, workers)
        if workers.rank == 0:
            self._notes = [*self._notes, *self._what_is_missing(job.events)]
        self._log = job.open_log() if workers.rank == 0 else None
        self._tokens = self._done = 0  # along the surviving lineage
        self._time = Spent()
        self._delivered, self._data_due = Delivered(len(prepared.languages), workers.size), 0.0
        self._saving: dict[str, float] | None = None  # the metrics of the step whose checkpoint is on its way
        self._problem: str | None = None
        profiled = config.track.profile_steps if workers.rank == 0 else 0
        self._profile = StepProfile(
            RunFolder(job.folder).profile,
            profiled,
            workers.device,
            lambda steps, text: self._log_event("profile", self._done, steps=steps, text=text),
        )

    def run(self, batches: Iterator[RankBatch]) -> None:
        """Steps from where the loaded state is to the end."""
        first = self._found.step if self._found else 0
        self._tokens = self._found.manifest["tokens"] if self._found else 0
        workers, steps = self._workers, self._config.train.max_steps
        hosts = workers.gather(socket.gethostname())
        host_metrics(workers.device)  # the use of the CPUs is counted from now on
        how = {"workers": workers.size, "zero_stage": self._config.parallel.zero_stage, "execution": self._execution}
        how |= {"hosts": hosts}
        self._log_event("start", first, **{**self._job.identity, **how}, steps=steps, notes=self._notes)
        began, before = time.monotonic(), self._tokens
        if not first:
            self._scoring.score(0, self._log_event)
        process.collect_as_usual()
        process.keep_what_lives()
        if first < steps:
            limit = self._config.parallel.step_timeout_s
            stalled = StallWatch(workers, limit, lambda text: self._log_event("stalled", self._done, text=text))
            with closing(stalled) as watch:
                try:
                    for step in range(first, steps):
                        with self._profile:
                            self._take(step, batches, watch)
                except TrainingError as error:  # raised by all ranks together
                    if isinstance(error, LossError):
                        self._log_event("not_finite", self._done + 1, text=str(error))
                    self._publish()
                    raise
                self._profile.close()
                self._publish()  # which all ranks do together: one that stops reading stops all of them
        seconds, tokens = time.monotonic() - began, self._tokens
        cost = {"run/seconds": seconds, "run/worker_hours": seconds * workers.size / 3600}
        speed = {"run/tokens": tokens, "run/tokens_per_s": (tokens - before) / max(seconds, 1e-9)}
        self._log_event("end", steps, cost | speed)
        raise_on_all_ranks(workers, self._problem)

    def _what_is_missing(self, log: Path) -> list[str]:
        """Gaps in the run's numbers, and their reasons; reported at the start."""
        done = self._found.step if self._found else 0
        last = last_step(log)
        is_cut = done and (not last or last + self._config.logging_steps <= done)
        cut = (
            f"{log.name} ends at step {last}, the checkpoint is of step {done}: the log was removed or cut, and the "
            "numbers between are lost. Later ones are added to it."
        )
        return [cut] * bool(is_cut) + self._scoring.notes()

    def _take(self, step: int, batches: Iterator[RankBatch], watch: StallWatch) -> None:
        watch.enter(step + 1, WAITS)
        began = time.perf_counter()
        with record_function("step/data wait"):
            batch = next(batches, None)
        assert batch is not None, f"the feed ended before step {step + 1} of {self._config.train.max_steps}"
        waited = time.perf_counter() - began
        watch.enter(step + 1, COMPUTES)
        asked, written = bool(self._job.stop_asked()), self._checkpoints.written
        totals = self._stepper.take(step, batch, asked, written, self._problem, waited)
        done, steps = step + 1, self._config.train.max_steps
        logged = done % self._config.logging_steps == 0 or done == steps
        scored, dev = self._scoring.is_due(done), None
        saved = done % self._config.checkpoint.save_steps == 0 or done == steps or totals.stop_asked
        saved = saved or self._scoring.chooses(done)
        outcome = self._stepper.fetch() if logged or scored or saved else None  # nothing is saved that is not finite
        watch.pause()
        self._tokens += totals.tokens
        self._done = done
        self._time.add(totals, time.perf_counter() - began)
        self._delivered.add(totals, self._config.train.global_batch_size)
        metrics = self._time.metrics(outcome, self._workers, self._config.train) if outcome else {}
        if logged:
            self._time = Spent()
            self._log_event("step", done, metrics, batch_hash=totals.batch_hash)
            self._log_data(done)
        if scored:
            dev = self._scoring.score(done, self._log_event)
        if totals.checkpoint_written:
            self._publish()
        if saved:
            self._save(done, metrics, dev if self._scoring.chooses(done) else None)
        if totals.stop_asked and done < steps:
            name = next(filter(None, self._workers.gather(self._job.stop_asked())))
            self._publish()  # what stops is saved
            self._log_event("stopped", done, signal=name)
            raise StoppedError(
                f"Stopped ({name}): step {done} of {steps} is saved. Rerun the same command to resume.",
                process.exit_code(name),
            )

    def _log_data(self, step: int) -> None:
        now = time.monotonic()
        if now < self._data_due and step < self._config.train.max_steps:
            return
        self._data_due = now + DATA_EVERY_S
        delivered = self._delivered
        by_language = dict(zip(self._prepared.languages, delivered.language_tokens.tolist(), strict=True))
        counts = {"data/rows": delivered.rows, "data/tokens": delivered.tokens} | host_metrics(self._workers.device)
        waits, held = delivered.take_ms()
        self._log_event("data", step, counts, language_tokens=by_language, data_wait_ms=waits, held_up_ms=held)

    def _save(self, step: int, metrics: dict[str, float], dev: float | None) -> None:
        self._publish()  # at most one is on its way
        self._check_lock()
        with record_function("step/checkpoint"):
            self._checkpoints.begin(self._engine, step, {"tokens": self._tokens, "dev": dev})
        self._saving = metrics
        gc.collect()  # where all ranks stop anyway: one that collects between two steps holds the others up
        if not self._config.checkpoint.async_save:
            self._publish()

    def _publish(self) -> None:
        """Waits for the checkpoint that is being written, if any, and logs that it exists; called by all ranks."""
        if self._saving is None:
            return
        metrics, self._saving = self._saving, None
        self._check_lock()
        with record_function("step/checkpoint"):
            step, folder, cost = self._checkpoints.publish()
        self._log_event("checkpoint", step, cost, path=str(folder))
        if self._job.on_checkpoint:
            self._job.on_checkpoint(step, metrics)

    def _check_lock(self) -> None:
        if not all(self._workers.gather(self._workers.rank != 0 or self._job.is_ours())):
            raise self._job.lost()

    def _log_event(self, event: str, step: int, metrics: Mapping[str, float] | None = None, **fields: Any) -> None:
        if self._log is None:
            return
        try:
            self._log.write(event, step, metrics, **fields)
        except TrainingError as error:
            self._problem = str(error)  # the other ranks learn of it with the next step
