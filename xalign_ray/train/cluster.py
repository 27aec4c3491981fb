"""The Ray cluster of a command: the one that RAY_ADDRESS names is joined, or one is started on this machine."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import AuthenticationError

from xalign_ray.config.schema import ParallelConfig
from xalign_ray.errors import ClusterError, ConfigError, first_sentence, long_temporary_folder
from xalign_ray.private.ray import (
    disable_auto_connect,
    disable_sigterm_handler,
    few_processes,
    local_node,
    memory_of_node,
)
from xalign_ray.train.cluster_address import UNAUTHENTICATED, check_named_cluster, ensure_token, named_cluster
from xalign_ray.work import process
from xalign_ray.work.status_line import say

SPARE_CPUS = 2  # of a cluster started here: the feed's, and one for what else Ray runs
VITAL = ("raylet", "gcs_server")  # processes of Ray's without which a driver ends
LOOK_S = 0.5  # how often these are looked at


def connect(parallel: ParallelConfig, cpus: int | None = None) -> None:
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
    disable_auto_connect()
    with process.kept():
        _connect(parallel, cpus)


@contextmanager
def connected_briefly() -> Iterator[None]:
    """Inside, a cluster may be joined or started, and is left at the end; one that was there before stays."""
    before = ray.is_initialized()
    try:
        yield
    finally:
        if not before:
            ray.shutdown()


def _connect(parallel: ParallelConfig, cpus: int | None) -> None:
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address := named_cluster():
        try:
            ray.init(address=address, **quiet)
        except AuthenticationError:
            raise ConfigError(
                f"The cluster at {address}, which RAY_ADDRESS names, cannot be joined: {UNAUTHENTICATED}"
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
                _memory=memory_of_node(),
                **quiet,
            )
    except Exception as error:  # Ray has no class for this: it raises bare Exceptions too
        if (sentence := long_temporary_folder(error)) is not None:
            raise ConfigError(sentence) from error
        raise ClusterError(
            f"Ray did not start on this machine: {first_sentence(error)} Rerun the command when it is less busy; "
            "Ray's own words are in the newest /tmp/ray/session_*/logs."
        ) from error
    threading.Thread(target=_report_deaths, args=(local_node(),), name="ray-processes", daemon=True).start()


def _report_deaths(node: Any) -> None:
    """Reports that Ray's own processes here have died: some ten seconds later Ray ends this one without a word."""
    while local_node() is node:
        time.sleep(LOOK_S)
        dead = [name for name, _ in node.dead_processes() if name in VITAL]
        if dead and local_node() is node:  # else this process has just ended them itself
            sys.stderr.write(
                f"xalign: Ray's {dead[0]} on this machine has died (killed by hand, or for want of memory), and the "
                "cluster with it. Rerun the same command: it resumes from the files on disk.\n"
            )
            return


def check_machine(parallel: ParallelConfig) -> None:
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
