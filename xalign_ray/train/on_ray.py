"""Runs the training loop as a Ray Train job on the joined cluster, and moves its workers when nodes leave or come."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from concurrent.futures import Future
from functools import partial
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
from xalign_ray.train.worker import SharedGpus, ask_to_stop, asked_to_stop, has_failed, listens, say_failed, work
from xalign_ray.work import process
from xalign_ray.work.job import Job
from xalign_ray.work.mirror import cache_folder, url_of
from xalign_ray.work.run_folder import RunFolder
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import CACHE

LOOK_S = 0.05  # how soon a signal is passed on
PARTING_S = 10  # seconds for the thread that fits to notice the end of its workers
POLL_S = 0.5  # how often Ray Train looks at its workers; Ray's 2 s lose work after a death
FINAL = ConfigError, TrainingError  # what a worker raises, and the next attempt would raise again
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
    sent = {
        "job": {"folder": str(job.folder.resolve()), "identity": dict(job.identity), "token": job.token},
        "trust": job.trust,
        "prepared_folder": str(prepared_folder.resolve()),
        "config": config.model_dump(mode="json"),
        "few_rows": needs_few_rows(Prepared.open(prepared_folder), config),
    }
    fewest = "" if parallel.min_workers is None else f"{parallel.min_workers} to "
    many = f"{fewest}{parallel.workers} training {'process' if parallel.workers == 1 else 'processes'}"
    try:
        line = Progress(config.train.max_steps, sys.stderr, title)
        with job.shown(line, RunGauges(job.folder.resolve(), job.identity)):
            while True:
                say(f"{title}{': ' if title else ''}Starting {many}, which takes some 10 s.")
                attempt = f"attempts-{time.time_ns()}"
                trainer = new_trainer(
                    work,
                    final=FINAL,
                    most_workers=partial(most_workers, parallel),
                    has_free_place=partial(has_free_place, parallel),
                    move=partial(ask_to_stop, attempt),
                    restart=partial(say_failed, attempt),
                    train_loop_config=sent | {"attempt": attempt},
                    backend_config=SharedGpus(),
                    scaling_config=scaling,
                    run_config=RunConfig(
                        name=attempt,  # a new one each time: the run folder, not Ray, knows where to resume from
                        storage_path=str(storage),
                        failure_config=FailureConfig(parallel.max_failures),
                        logging_config=LoggingConfig(log_level="ERROR"),
                        # Such processes start anew, in two seconds; a step of a large vocabulary is a quarter faster.
                        worker_runtime_env={} if parallel.gpus_per_worker else {"env_vars": ONE_ARENA},
                    ),
                )
                try:
                    return _wait_for(trainer, attempt)
                except StoppedError:
                    if process.asked():
                        raise
                    say(f"the workers start again: {asked_to_stop(attempt)}")
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


def _wait_for(trainer: Any, attempt: str) -> None:
    """Fits in a thread, and meanwhile passes a signal on to the workers, where they take steps."""
    outcome: Future[XalignError | None] = Future()

    def fit() -> None:
        try:
            outcome.set_result(_fit(trainer))
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=fit, name="fit", daemon=True)
    passed_on = False
    try:
        with process.heeded():
            thread.start()
            while thread.is_alive():
                thread.join(LOOK_S)
                if not (why := process.asked()) or (passed_on and not has_failed(attempt)):
                    continue
                if not listens(attempt):  # no step is in progress
                    if threading.current_thread() is threading.main_thread():
                        process.interrupt()
                    raise StoppedError(f"Stopped ({why}); no step was in progress.")
                ask_to_stop(attempt, why)
                passed_on = True
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
        if final := [failure for failure in failures.values() if isinstance(failure, FINAL)]:
            return final[0]
        if failures:
            errors = "; ".join(f"worker {rank}: {_last_line(error)}" for rank, error in sorted(failures.items()))
            return TrainingError(f"Workers failed more often than parallel.max_failures allows; the last time {errors}")
        return TrainingError(f"Ray gave the job up: {_last_line(failed)}")


def _last_line(error: object) -> str:
    """The sentence below a traceback."""
    return str(error).strip().rpartition("\n")[2]
