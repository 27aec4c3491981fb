"""Runs the training loop as a Ray Train job on the joined cluster, and moves its workers when nodes leave or come."""

from __future__ import annotations

import math
import os
import shutil
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import ray
import ray.train
from ray.train import (
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
    WorkerGroupError,
)

from xalign_ray.config import schema
from xalign_ray.errors import ConfigError, StoppedError, TrainingError, XalignError, out_of_memory
from xalign_ray.feed.batches import needs_few_rows
from xalign_ray.private.ray import new_trainer
from xalign_ray.shards.prepared import Prepared
from xalign_ray.train.capacity import has_free_place, most_workers, resources_of, wait_for_room
from xalign_ray.train.progress import Progress
from xalign_ray.train.ray_gauges import RunGauges
from xalign_ray.train.rendezvous import ClosedTorchConfig
from xalign_ray.train.worker import ask_to_stop, work
from xalign_ray.work import process
from xalign_ray.work.job import Job
from xalign_ray.work.mirror import cache_folder, url_of
from xalign_ray.work.run_folder import RunFolder
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import CACHE

LOOK_S = 0.05  # how soon a signal is passed on
ASK_S = 5.0  # between two questions whether somebody still ends a step
ENDS_S = 60  # for Ray to end, and report ended, the workers of a run that has saved its step
PARTING_S = 10  # seconds for the thread that fits to notice the end of its workers
POLL_S = 0.5  # how often Ray Train looks at its workers; Ray's 2 s lose work after a death
# In a thread that is not the first, such as Ray Train's, glibc maps and unmaps large blocks each time, in spite of
# `keep_freed_memory`, unless the process began with one arena for all threads.
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}


def check_mirror(run_folder: Path, nodes: int) -> None:
    """Finds out whether the nodes of a cluster can share the mirror of a run in a store.

    Raises:
        ConfigError: it lies in the home folder of one of several nodes.
    """
    if nodes > 1 and CACHE not in os.environ and (url := url_of(run_folder)):
        raise ConfigError(
            f"The cluster has {nodes} nodes, and {url} is mirrored in {cache_folder()} of this one. Set {CACHE}, on "
            "all of them, to a folder that they share."
        )


def run_on_ray(
    job: Job,
    config: schema.RunConfig,
    prepared_folder: Path,
    title: str = "",
) -> None:
    """Trains a recipe to its last step on the joined cluster; continues a run that was begun.

    Ray Train starts dead workers again, with `parallel.min_workers` as many as there is room for. Workers on a node
    that is drained (Kubernetes, spot machines) save the step in progress and start again on the other nodes before it
    dies; so do the workers of a run that Ray Train would make larger.

    Args:
        job: of the run folder, on a disk that all nodes see; workers that outlive its lock save nothing more.
        config: the recipe.
        prepared_folder: the finished data folder, likewise.
        title: begins each line of progress.

    Raises:
        ConfigError: the cluster is too small, and no autoscaler has brought nodes in time.
        StoppedError: this process was asked to stop; the step in progress is saved.
        TrainingError: training cannot go on, or workers died more often than `parallel.max_failures`.
        CheckpointError: a checkpoint is another run's, or cannot be written.
    """
    parallel = config.parallel
    scaling = _scaling_config(parallel)
    wait_for_room(parallel)
    check_mirror(job.folder, sum(node["Alive"] for node in ray.nodes()))
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", str(POLL_S))
    os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")  # it notifies workers, and moves none
    os.environ.setdefault("RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING", "0")  # it takes over this process's logging
    storage = RunFolder(job.folder.resolve()).ray
    few_rows = needs_few_rows(Prepared.open(prepared_folder), config)
    sent = {
        "job": {"folder": str(job.folder.resolve()), "identity": dict(job.identity), "token": job.token},
        "trust": job.trust,
        "prepared_folder": str(prepared_folder.resolve()),
        "config": config.model_dump(mode="json"),
        "few_rows": few_rows,
    }
    fewest = "" if parallel.min_workers is None else f"{parallel.min_workers} to "
    many = f"{fewest}{parallel.workers} training {'process' if parallel.workers == 1 else 'processes'}"
    try:
        line = Progress(config.train.max_steps, sys.stderr, title)
        with job.shown(line, RunGauges(job.folder.resolve(), job.identity)):
            while True:
                say(f"{title}{': ' if title else ''}Starting {many}, which takes some 10 s.")
                trainer = _trainer(parallel, scaling, sent, storage, shares_cpus=not few_rows)
                try:
                    return _wait_for(trainer)
                except StoppedError:
                    if not trainer.must_move or process.asked():
                        raise
                    say(f"the workers start again: {trainer.must_move}")
    except KeyboardInterrupt:
        # Ends the workers, here and on other machines; where a thread still waits for Ray, this process would crash.
        ray.shutdown()
        raise
    finally:
        shutil.rmtree(storage, ignore_errors=True)


def _scaling_config(parallel: schema.ParallelConfig) -> ScalingConfig:
    fewest, most = parallel.min_workers, parallel.workers
    try:
        return ScalingConfig(
            num_workers=most if fewest is None else (fewest, most),
            use_gpu=parallel.gpus_per_worker > 0,
            resources_per_worker=resources_of(parallel),
            **parallel.ray,
        )
    except (TypeError, ValueError, DeprecationWarning) as error:
        raise ConfigError(f"parallel.ray: Ray Train's ScalingConfig cannot read it: {error}") from None


def _trainer(
    parallel: schema.ParallelConfig, scaling: ScalingConfig, sent: dict[str, Any], storage: Path, shares_cpus: bool
) -> Any:
    return new_trainer(
        work,
        shares_cpus=shares_cpus,
        most_workers=lambda: most_workers(parallel),
        has_free_place=lambda: has_free_place(parallel),
        train_loop_config=sent,
        backend_config=ClosedTorchConfig(parallel.gpus_per_worker > 0, parallel.group_timeout_s),
        scaling_config=scaling,
        run_config=RunConfig(
            # A new name for each call: the run folder, not Ray, knows the checkpoint to resume from.
            name=f"attempts-{time.time_ns()}",
            storage_path=str(storage),
            failure_config=FailureConfig(parallel.max_failures),
            logging_config=LoggingConfig(log_level="ERROR"),
            # Such processes start anew, in two seconds; a step of a large vocabulary is a quarter faster.
            worker_runtime_env={} if parallel.gpus_per_worker else {"env_vars": ONE_ARENA},
        ),
    )


def _wait_for(trainer: Any) -> None:
    """Fits in a thread, and meanwhile asks rank 0 to stop where a signal or a node that leaves wants it."""
    outcome: Future[XalignError | None] = Future()

    def fit() -> None:
        try:
            outcome.set_result(_fit(trainer))
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=fit, name="fit", daemon=True)
    asked_at = heard_at = -math.inf
    try:
        with process.heeded():
            thread.start()
            while thread.is_alive():
                thread.join(LOOK_S)
                why, now = process.asked() or trainer.must_move, time.monotonic()
                if why and now > asked_at + ASK_S:
                    asked_at = now
                    if ask_to_stop(trainer.rank_zero, why):
                        heard_at = now
                    elif process.asked() and now > heard_at + ENDS_S:  # no step is in progress
                        if threading.current_thread() is threading.main_thread():
                            process.interrupt()
                        raise StoppedError(f"Stopped ({process.asked()}); no step was in progress.")
            if (error := outcome.result()) is not None:
                raise error
    finally:
        if thread.is_alive():
            trainer.end()
            thread.join(PARTING_S)


def _fit(trainer: Any) -> XalignError | None:
    try:
        return trainer.fit().return_value
    except TrainingFailedError as failed:
        failures = failed.worker_failures if isinstance(failed, WorkerGroupError) else {}
        if why := out_of_memory("\n".join(map(str, [failed, *failures.values()]))):
            return TrainingError(why)
        if failures:
            errors = "; ".join(f"worker {rank}: {_last_line(error)}" for rank, error in sorted(failures.items()))
            return TrainingError(f"Workers failed more often than parallel.max_failures allows; the last time {errors}")
        return TrainingError(f"Ray gave the job up: {_last_line(failed)}")


def _last_line(error: Exception) -> str:
    """The sentence below a traceback."""
    return str(error).strip().rpartition("\n")[2]
