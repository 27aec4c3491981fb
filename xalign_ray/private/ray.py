"""Private parts of Ray: the local node, free and drained resources of nodes, Ray Train's controller and group."""

# pyright: reportPrivateImportUsage=false, reportAttributeAccessIssue=false
from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partialmethod
from typing import Any

import ray


def disable_sigterm_handler() -> None:
    """Keeps `ray.init` from its own handler of SIGTERM, which breaks a start off and leaves agents of the node behind.

    If it changes: a cluster that is stopped while it starts leaves processes (tests/unit/test_stops.py).
    """
    import ray._private.utils

    ray._private.utils.set_sigterm_handler = lambda _: None


def disable_auto_connect() -> None:
    """Keeps a thread that outlives the cluster, such as one in which Ray Train's controller works, from starting one.

    If it changes: a second Ctrl-C leaves a warning and a cluster that nobody asked for (tests/ray/test_signals.py).
    """
    import ray._private.auto_init_hook

    ray._private.auto_init_hook.enable_auto_connect = False


def memory_of_node() -> int:
    """Memory of this machine or container in bytes. Ray's default is the part that is free when a node starts.

    If it changes: a cell that names most of the memory is refused (tests/ray/test_study.py).
    """
    import ray._common.utils

    return ray._common.utils.get_system_memory()


@contextmanager
def few_processes() -> Iterator[None]:
    """Inside, `ray.init` starts a node without the autoscaler's monitor, the log monitor and the dashboard's server.

    Nothing asks them on a cluster of one machine whose driver shows its own progress. They take 2.4 CPU seconds, and
    `ray.init` waits for the last of them. Gauges are not theirs: the node's agent shows them to Prometheus. That
    listens to a dashboard on any free port: for Ray's own it would wait seconds where another cluster has it.

    If it changes: a KeyError or TypeError where a cluster starts, or they are there again, or the port is Ray's
    (tests/ray/test_reshard_on_ray.py).
    """
    import ray._private.node
    import ray._private.parameter

    starts = ("start_monitor", "start_log_monitor", "start_api_server")
    parameters = ray._private.parameter.RayParams
    any_port = partialmethod(parameters.__init__, dashboard_agent_listen_port=0)
    none: Any = dict.fromkeys(starts, staticmethod(lambda *_, **__: None))
    with _with(ray._private.node.Node, none), _with(parameters, {"__init__": any_port}):
        yield


@contextmanager
def _with(owner: type, methods: Mapping[str, Any]) -> Iterator[None]:
    """Inside, these stand for methods of a class.

    If it changes: a KeyError that names the method.
    """
    before = {name: vars(owner)[name] for name in methods}
    for name, method in methods.items():
        setattr(owner, name, method)
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(owner, name, method)


def local_node() -> Any:
    """Ray's processes on this machine, None where no cluster runs; there is no public way to ask for them.

    If it changes: an AttributeError in `connect`, after the cluster has started, or in the thread that reports which of
    its `dead_processes()` there are (tests/ray/test_faults_driver.py).
    """
    return ray._private.worker.global_worker.node


def free_resources() -> Mapping[str, Mapping[str, float]]:
    """The free resources of each node, by its id; the public `ray.available_resources` has the sum only.

    If it changes: an AttributeError when a run with `min_workers` starts (tests/ray/test_free_room.py).
    """
    return ray._private.state.available_resources_per_node()


def draining_nodes() -> set[str]:
    """Ids of the nodes that are drained: they take no new work, and go soon. Ray Train's own watcher asks the same way.

    If it changes: an AttributeError when the room of a cluster is counted (tests/ray/test_room.py).
    """
    return set(ray._private.state.state.get_draining_nodes())


def address_of_auto() -> str:
    """HOST:PORT that RAY_ADDRESS=auto stands for, empty where no cluster was started here.

    If it changes: an ImportError, or a dead cluster is waited for ten minutes (tests/unit/train/test_connect.py).
    """
    from ray._private.services import canonicalize_bootstrap_address

    return canonicalize_bootstrap_address("auto") or ""


def post(key: str, value: str) -> None:
    """Leaves a word for the other processes of the cluster, in Ray's key-value store.

    If it changes: an ImportError when a training starts (tests/ray/test_stop_request.py).
    """
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(key, value)


def posted(key: str) -> str:
    """The word that `post` left under a key; empty where there is none, or the store does not answer.

    If it changes: as `post`.
    """
    from ray.experimental.internal_kv import _internal_kv_get

    with suppress(Exception):  # a store that starts again fails no step
        return (_internal_kv_get(key) or b"").decode()
    return ""


def new_trainer(
    *arguments: Any,
    final: tuple[type[Exception], ...],
    most_workers: Callable[[], int],
    has_free_place: Callable[[], bool],
    move: Callable[[str], None],
    restart: Callable[[], None],
    **options: Any,
) -> Any:
    """Ray Train's trainer of any framework; the public `ray.train.data_parallel_trainer` is still that of version 1.

    Its controller works in the thread that calls `fit` and not in an actor, for which workers would wait; a run of 24
    CPU seconds would take 31. Two actors are left out that take 1.3 to 2 CPU seconds each: that of Ray Train's own way
    of data, since rows come from `feed/on_ray.py`; and the one that frees the room of a dead controller, which dies
    with its driver, as its workers do.

    Beside `fit` it has `end()`, for other threads: then `fit` raises CancelledError and no worker lives.

    Args:
        final: errors of a worker that end the run: the next attempt would meet them again.
        most_workers: how many the nodes could hold, for elastic runs. Ray Train's own count has nodes that are drained,
            learns of others after up to 20 s, and leaves the feed no CPU.
        has_free_place: whether there is room for one more beside all that runs.
        move: called with the reason why the workers are to save and start again: a node of theirs is drained, which
            Ray Train only reports; or there is room for more, for which Ray Train would kill them in mid-step.
        restart: called when workers have failed and others are to follow, as soon as there is room for them.

    If it changes: an ImportError or TypeError when a training starts, or actors are there again
    (tests/ray/test_reshard_on_ray.py), or a second Ctrl-C hangs (tests/ray/test_signals.py).
    """
    from ray.runtime_context import RuntimeContext
    from ray.train import FailureConfig
    from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
    from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
    from ray.train.v2._internal.execution.controller import TrainController
    from ray.train.v2._internal.execution.failure_handling import DefaultFailurePolicy, FailureDecision
    from ray.train.v2._internal.execution.scaling_policy import (
        ElasticScalingPolicy,
        NoopDecision,
        ResizeDecision,
        ScalingDecision,
    )
    from ray.train.v2._internal.execution.worker_group import WorkerGroup
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    class FailFast(DefaultFailurePolicy):
        def make_decision(self, training_failed_error: Any) -> FailureDecision:
            failures = getattr(training_failed_error, "worker_failures", {}).values()
            if any(isinstance(failure, final) for failure in failures):
                return FailureDecision.RAISE
            decision = super().make_decision(training_failed_error)
            if decision == FailureDecision.RETRY:
                with suppress(Exception):  # the cluster may be what has died
                    restart()
            return decision

    class Elastic(ElasticScalingPolicy):
        tried = math.inf  # workers of a group that found no room, so that the next one is smaller

        def _count_possible_workers(self, reserved_resources: Any) -> int:  # noqa: ARG002 - Ray's signature
            return most_workers()

        def make_decision_for_non_running_worker_group(self) -> ScalingDecision:
            decision = super().make_decision_for_non_running_worker_group()
            if isinstance(decision, ResizeDecision):
                self.tried = max(self.scaling_config.min_workers, min(decision.num_workers, self.tried - 1))
                decision.num_workers = int(self.tried)
            else:
                time.sleep(self.GET_RESERVED_RESOURCES_INTERVAL_S)  # the controller asks again at once
            return decision

        def make_decision_for_running_worker_group(self, worker_group_state: Any, **given: Any) -> ScalingDecision:
            self.tried = math.inf
            decision = super().make_decision_for_running_worker_group(worker_group_state, **given)
            grows = isinstance(decision, ResizeDecision) and decision.num_workers > worker_group_state.num_workers
            if grows and has_free_place():
                move("room for more workers")
            return NoopDecision()

    class Group(WorkerGroup):
        def _create_placement_group(self, *given: Any) -> Any:
            trainer.reserved = super()._create_placement_group(*given)
            return trainer.reserved

        def _init_train_context_on_workers(self, *given: Any) -> None:
            with _with(RuntimeContext, {"current_actor": None}):  # the controller's, which no worker asks
                super()._init_train_context_on_workers(*given)

    class Controller(TrainController):
        worker_group_cls = Group

        async def _run_control_loop_iteration(self) -> None:
            if trainer.ended:
                raise asyncio.CancelledError
            with suppress(Exception):  # the cluster may be what has died: the next line finds out
                group, drained = self.get_worker_group(), draining_nodes()
                if group and any(worker.metadata.node_id in drained for worker in group.get_workers()):
                    move("a node is drained")
            await super()._run_control_loop_iteration()

    class Trainer(DataParallelTrainer):
        reserved: Any = None
        ended = False

        def end(self) -> None:
            self.ended = True
            if self.reserved:
                with suppress(Exception):  # the cluster may be what has died
                    self.reserved.shutdown()

        def _create_default_callbacks(self) -> list[Any]:
            not_needed = (DatasetsCallback, PlacementGroupCleanerCallback)
            return [hook for hook in super()._create_default_callbacks() if not isinstance(hook, not_needed)]

        def _initialize_and_run_controller(self, **given: Any) -> Any:
            _log_to_session()
            given |= {"failure_policy": FailFast(self.run_config.failure_config or FailureConfig())}
            if self.scaling_config.elasticity_enabled:
                given |= {"scaling_policy": Elastic(self.scaling_config)}
            controller = Controller(**given)
            asyncio.run(controller.run())
            return controller.get_result()

    trainer = Trainer(*arguments, **options)
    return trainer


def _log_to_session() -> None:
    """Ray Train's own messages go into a file of the session and not into the user's terminal.

    If it changes: an ImportError when a training starts.
    """
    from ray.train.v2._internal.logging.logging import SessionFileHandler

    logger = logging.getLogger("ray.train")
    if logger.propagate:
        logger.propagate = False
        logger.addHandler(SessionFileHandler("xalign-controller.log"))
