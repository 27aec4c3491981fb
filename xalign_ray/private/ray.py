"""Private parts of Ray: the local node, what is free and drained of each, Ray Train's controller and process group."""

# pyright: reportPrivateImportUsage=false, reportAttributeAccessIssue=false
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import ray


def disable_sigterm_handler() -> None:
    """Keeps `ray.init` from its own handler of SIGTERM, which breaks a start off and leaves agents of the node behind.

    If it changes: a cluster that is told to stop while it starts leaves processes (tests/unit/test_stops.py).
    """
    import ray._private.utils

    ray._private.utils.set_sigterm_handler = lambda _: None


@contextmanager
def few_processes() -> Iterator[None]:
    """Inside, `ray.init` starts a node without the autoscaler's monitor, the log monitor and the dashboard's server.

    Nothing asks them on a cluster of one machine whose driver shows its own progress. They take two seconds of a core,
    and `ray.init` waits for the last of them. Gauges are not theirs: the node's agent shows them to Prometheus.

    If it changes: a KeyError where a cluster starts, or they are there again (tests/ray/test_reshard_on_ray.py).
    """
    import ray._private.node

    starts = ("start_monitor", "start_log_monitor", "start_api_server")
    with _without(ray._private.node.Node, starts):
        yield


@contextmanager
def few_actors() -> Iterator[None]:
    """Inside, Ray Data does without the actor that counts for a dashboard where there is none: two seconds of a core.

    If it changes: a KeyError where data tasks run, or it is there again (tests/ray/test_reshard_on_ray.py).
    """
    from ray.data._internal.stats import _StatsManager

    reports = ("register_dataset_to_stats_actor", "update_execution_metrics")
    with _without(_StatsManager, () if _has_dashboard() else reports):
        yield


def _has_dashboard() -> bool:
    """Whether the joined cluster has a dashboard's server: one that `few_processes` started has none.

    If it changes: an AttributeError when a training starts.
    """
    import ray._private.services

    return ray._private.services.get_webui_url_from_internal_kv() is not None


@contextmanager
def _without(owner: type, methods: Iterable[str]) -> Iterator[None]:
    """Inside, these methods of a class do nothing.

    If it changes: a KeyError that names the method.
    """
    before = {name: vars(owner)[name] for name in methods}
    for name in before:
        setattr(owner, name, staticmethod(lambda *_, **__: None))
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(owner, name, method)


def local_node() -> Any:
    """Ray's processes on this machine, None where no cluster runs; there is no public way to ask for them.

    If it changes: an AttributeError in `connect`, after the cluster has started.
    """
    return ray._private.worker.global_worker.node


def dead_processes(node: Any) -> list[str]:
    """Names of the processes of a `local_node` that have died.

    If it changes: the thread that reports such a death ends with an AttributeError (tests/ray/test_faults_driver.py).
    """
    return [name for name, _ in node.dead_processes()]


def free_resources() -> Mapping[str, Mapping[str, float]]:
    """What is free of each node's resources, by its id; the public `ray.available_resources` has the sum only.

    If it changes: an elastic run cannot tell whether it may grow (tests/ray/test_free_room.py).
    """
    return ray._private.state.available_resources_per_node()


def draining_nodes() -> set[str]:
    """Ids of the nodes that are drained: they take no new work, and go soon. Ray Train's own watcher asks the same way.

    If it changes: an AttributeError when the room of a cluster is counted (tests/ray/test_room.py).
    """
    return set(ray._private.state.state.get_draining_nodes())


def nodes_of_workers() -> list[str]:
    """Id of the node of each training worker of this job.

    If it changes: a run stays on a node that is drained until the node dies (tests/ray/test_faults_node.py).
    """
    job = ray.JobID.from_hex(ray.get_runtime_context().get_job_id())
    workers = (one for one in ray._private.state.actors(job_id=job).values() if one["State"] == "ALIVE")
    return [one["Address"]["NodeID"] for one in workers if one["ActorClassName"] == "RayTrainWorker"]


def address_of_auto() -> str:
    """HOST:PORT that RAY_ADDRESS=auto stands for, empty where no cluster was started here.

    If it changes: an ImportError, or a dead cluster is waited for ten minutes (tests/unit/train/test_connect.py).
    """
    from ray._private.services import canonicalize_bootstrap_address

    return canonicalize_bootstrap_address("auto") or ""


def kill_controller() -> None:
    """Kills the actor that `trainer.fit` of this process waits for; Ray Train keeps its handle to itself.

    If it changes: a second Ctrl-C waits until the workers have ended by themselves (tests/ray/test_signals.py).
    """
    with suppress(Exception):  # the cluster may be what has died
        job = ray.JobID.from_hex(ray.get_runtime_context().get_job_id())
        for name, actor in ray._private.state.actors(job_id=job).items():
            if actor["ActorClassName"] == "TrainController":
                worker = ray._private.worker.global_worker
                worker.core_worker.kill_actor(ray.ActorID.from_hex(name), True)


def new_trainer(*arguments: Any, **options: Any) -> Any:
    """Ray Train's trainer of any framework; the public `ray.train.data_parallel_trainer` is still that of version 1.

    Without actors that take two seconds of a core each at a start: that of Ray Train's own way of data, since rows come
    from `feed/on_ray.py`; and the one that frees the room of a dead controller, which asks the dashboard whether it is
    dead, where there is none.

    If it changes: an ImportError when a training starts, or they are there again (tests/ray/test_reshard_on_ray.py).
    """
    from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
    from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    class Trainer(DataParallelTrainer):
        def _create_default_callbacks(self) -> list[Any]:
            not_needed = (DatasetsCallback, *([] if _has_dashboard() else [PlacementGroupCleanerCallback]))
            return [one for one in super()._create_default_callbacks() if not isinstance(one, not_needed)]

    return Trainer(*arguments, **options)


def is_without_room(failure: Exception) -> bool:
    """Whether Ray Train's controller gave up because the nodes had no room for the workers in time.

    If it changes: an ImportError; an elastic run counts other work on its nodes as a death of workers.
    """
    from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError

    return isinstance(failure, WorkerGroupStartupTimeoutError)


def torch_framework() -> Any:
    """The mark by which Ray Train's state knows a backend of torch.

    If it changes: an ImportError, or a KeyError of the controller where a run's state is exported.
    """
    from ray.train.v2._internal.util import TrainingFramework

    return TrainingFramework.TORCH


def start_torch_group(worker_group: Any, backend: str, timeout_s: int) -> None:
    """Ray Train's own way to start a process group, over several nodes.

    If it changes: an ImportError when a training of several nodes starts (tests/ray/test_hosts.py).
    """
    from ray.train.torch.config import TorchConfig, _TorchBackend

    _TorchBackend().on_start(worker_group, TorchConfig(backend=backend, timeout_s=timeout_s))


def set_torch_variables() -> None:
    """Sets RANK, LOCAL_RANK, WORLD_SIZE and their kin of a training worker, as Ray Train's own backend does.

    If it changes: an ImportError when a training starts; else workers lack their local rank (tests/gpu).
    """
    from ray.train.torch.config import _set_torch_distributed_env_vars

    _set_torch_distributed_env_vars()


def leave_torch_group(destroy: bool) -> None:
    """Ends a worker's part in the process group and frees its devices, as Ray Train's own backend does.

    If it changes: an ImportError when a training ends.
    """
    from ray.train.torch.config import _shutdown_torch

    _shutdown_torch(destroy_process_group=destroy)
