"""Runs the loop on a Ray cluster: joins or starts one, reserves workers, retries after deaths, shows progress."""

from __future__ import annotations

import logging
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
from ray.exceptions import AuthenticationError
from ray.train import (
    ControllerError,
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
    WorkerGroupError,
)

from xalign_ray.config import schema
from xalign_ray.errors import (
    ClusterError,
    ConfigError,
    NotPlacedError,
    StoppedError,
    WorkersDiedError,
    XalignError,
    first_sentence,
    long_temporary_folder,
    out_of_memory,
)
from xalign_ray.feed.batches import needs_few_rows
from xalign_ray.private.ray import (
    dead_processes,
    disable_sigterm_handler,
    few_processes,
    is_without_room,
    local_node,
    new_trainer,
)
from xalign_ray.shards.prepared import Prepared
from xalign_ray.train.capacity import resources_of, run_on_nodes, wait_for_room
from xalign_ray.train.cluster_address import check_named_cluster, ensure_token, named_cluster, why_unauthenticated
from xalign_ray.train.progress import Progress
from xalign_ray.train.ray_gauges import RunGauges
from xalign_ray.train.rendezvous import ClosedTorchConfig
from xalign_ray.train.worker import StopRequest, work
from xalign_ray.work import process
from xalign_ray.work.job import Job
from xalign_ray.work.mirror import cache_folder, url_of
from xalign_ray.work.run_folder import RunFolder
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import CACHE

SPARE_CPUS = 2  # of a cluster started here: the feed's, and one for what else Ray runs
VITAL = ("raylet", "gcs_server")  # processes of Ray's without which a driver ends
LOOK_S = 0.05  # how soon a signal is passed on
ASK_S = 5.0  # between two questions whether somebody still ends a step
ENDS_S = 60  # for Ray to end the workers of a run that has saved its step, and to say so
PARTING_S = 10  # for the thread that fits to see that what it waits for has ended
POLL_S = 0.5  # how often Ray Train looks at its workers; Ray's 2 s lose work after a death
# In a thread that is not the first, such as Ray Train's, glibc takes what is large from the system each time and gives
# it back, whatever `keep_freed_memory` says, unless the process began with one arena for all threads.
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}


def connect(parallel: schema.ParallelConfig, cpus: int | None = None) -> None:
    """Joins the cluster that RAY_ADDRESS names, or starts one on this machine that is large enough for the recipe.

    CPUs are logical: a machine with fewer cores runs the same job, slower. `cpus` is how many a cluster started here
    has, where it is not for a recipe.

    Raises:
        ConfigError: the cluster cannot be joined, or the token of one that is started here cannot be written.
        ClusterError: Ray does not start.
    """
    if ray.is_initialized():
        return
    if address := named_cluster():
        say(f"Joining the Ray cluster at {address}.")
        check_named_cluster()
    else:
        say("Starting Ray on this machine.")
    disable_sigterm_handler()
    with process.kept():
        _connect(parallel, cpus)


def _connect(parallel: schema.ParallelConfig, cpus: int | None) -> None:
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address := named_cluster():
        try:
            ray.init(address=address, **quiet)
        except AuthenticationError:
            raise ConfigError(
                f"The cluster at {address}, which RAY_ADDRESS names, cannot be joined: {why_unauthenticated()}"
            ) from None
        except Exception as error:  # an address of another form, another Ray or Python: no class in common
            raise ConfigError(
                f"The cluster at {address}, which RAY_ADDRESS names, cannot be joined: {first_sentence(error)} It must "
                "be the HOST:PORT that `ray start` prints on the head node; unset it to start a cluster here."
            ) from error
        return
    ensure_token()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray sends nothing from here, nor starts a process for it
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")  # training workers have an environment of their own
    try:
        with few_processes():
            ray.init(
                address="local",
                num_cpus=cpus or int(parallel.workers * parallel.cpus_per_worker + 0.999) + SPARE_CPUS,
                resources={parallel.data_resource: 1} if parallel.data_resource else None,
                include_dashboard=False,
                **quiet,
            )
    except Exception as error:  # Ray has no class of its own for this: it raises bare Exceptions too
        if (said := long_temporary_folder(error)) is not None:
            raise ConfigError(said) from error
        raise ClusterError(
            f"Ray did not start on this machine: {first_sentence(error)} Give the command again when it is less busy; "
            "Ray's own words are in the newest /tmp/ray/session_*/logs."
        ) from error
    threading.Thread(target=_report_deaths, args=(local_node(),), name="ray-processes", daemon=True).start()


def _report_deaths(node: Any) -> None:
    """Says it when Ray's own processes here have died: some ten seconds later Ray ends this one without a word."""
    while local_node() is node:
        time.sleep(POLL_S)
        dead = [name for name in dead_processes(node) if name in VITAL]
        if dead and local_node() is node:  # else this process has just ended them itself
            sys.stderr.write(
                f"xalign: Ray's {dead[0]} on this machine has died (killed by hand, or for want of memory), and the "
                "cluster with it. Give the same command again: it goes on from what is on disk.\n"
            )
            return


def check_machine(parallel: schema.ParallelConfig) -> None:
    """Finds out before a cluster is started here whether this machine has the GPUs; CPUs are logical, so it has them.

    Raises:
        ConfigError: it has not.
    """
    asked = parallel.workers * parallel.gpus_per_worker
    if named_cluster() or ray.is_initialized() or not asked:
        return
    import torch  # here: a driver of CPUs does without

    if asked <= (there := torch.cuda.device_count()):
        return
    raise ConfigError(
        f"parallel.workers {parallel.workers} x parallel.gpus_per_worker {parallel.gpus_per_worker:g} are {asked:g} "
        f"GPUs; this machine has {there}. Set parallel.gpus_per_worker=0 to train on the CPU, or join a cluster that "
        "has them (RAY_ADDRESS)."
    )


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
    wait_for_room(parallel)
    check_mirror(job.folder, sum(node["Alive"] for node in ray.nodes()))
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", str(POLL_S))
    os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")  # `run_on_nodes` watches, and moves workers too
    os.environ.setdefault("RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING", "0")  # it takes over this process's logging
    storage = RunFolder(job.folder.resolve()).ray
    sent = {
        "job": {"folder": str(job.folder.resolve()), "identity": dict(job.identity), "token": job.token},
        "trust": job.trust,
        "prepared_folder": str(prepared_folder.resolve()),
    }
    prepared = Prepared.open(prepared_folder)

    def attempt(now: schema.ParallelConfig, stop: StopRequest) -> None:
        many = f"{now.workers} training {'process' if now.workers == 1 else 'processes'}"
        say(f"{title}{': ' if title else ''}Starting {many}, which takes some 10 s.")
        own = config.model_copy(update={"parallel": now})
        few = needs_few_rows(prepared, own)
        given = sent | {"config": own.model_dump(mode="json"), "few_rows": few}
        _wait_for(_trainer(now, given, storage, shares_cpus=not few), stop)

    try:
        line = Progress(config.train.max_steps, sys.stderr, title)
        with job.shown(line, RunGauges(job.folder.resolve(), job.identity)):
            run_on_nodes(parallel, job.events, attempt)
    except KeyboardInterrupt:
        # Ends the workers, here and on other machines; where a thread still waits for Ray, this process would crash.
        ray.shutdown()
        raise
    finally:
        shutil.rmtree(storage, ignore_errors=True)


def _trainer(parallel: schema.ParallelConfig, job: dict[str, Any], storage: Path, shares_cpus: bool) -> Any:
    # Of an elastic run this process starts the workers anew, and as many as there is room for.
    elastic = FailureConfig(0, controller_failure_limit=0)
    failures = FailureConfig(parallel.max_failures) if parallel.min_workers is None else elastic
    return new_trainer(
        work,
        shares_cpus=shares_cpus,
        train_loop_config=job,
        backend_config=ClosedTorchConfig(parallel.gpus_per_worker > 0, parallel.group_timeout_s),
        scaling_config=ScalingConfig(
            num_workers=parallel.workers,
            use_gpu=parallel.gpus_per_worker > 0,
            resources_per_worker=resources_of(parallel),
            placement_strategy=parallel.placement_strategy,
            label_selector=parallel.node_labels or None,
        ),
        run_config=RunConfig(
            # A name of its own for each call: what to continue from is the run folder's business, not Ray's.
            name=f"attempts-{time.time_ns()}",
            storage_path=str(storage),
            failure_config=failures,
            logging_config=LoggingConfig(log_level="ERROR"),
            # Such processes start anew, in two seconds; a step of a large vocabulary is a quarter faster.
            worker_runtime_env={} if parallel.gpus_per_worker else {"env_vars": ONE_ARENA},
        ),
    )


def _wait_for(trainer: Any, stop: StopRequest) -> None:
    """Fits in a thread, and meanwhile passes on the word to stop."""
    stop.rank_zero = trainer.rank_zero
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
                if process.asked() and (now := time.monotonic()) > asked_at + ASK_S:
                    asked_at = now
                    if stop.ask(process.asked()):
                        heard_at = now
                    elif now > heard_at + ENDS_S:  # no step is in progress
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
            return WorkersDiedError(why, "")
        if failures:
            said = [f"worker {rank}: {_last_line(error)}" for rank, error in sorted(failures.items())]
            return WorkersDiedError(
                "; ".join(said), "Workers failed more often than parallel.max_failures allows; the last time "
            )
        is_placed = not (isinstance(failed, ControllerError) and is_without_room(failed.controller_failure))
        kind = WorkersDiedError if is_placed else NotPlacedError
        return kind(_last_line(failed), "Ray gave the job up: ")


def _last_line(error: Exception) -> str:
    """The sentence below a traceback."""
    return str(error).strip().rpartition("\n")[2]
