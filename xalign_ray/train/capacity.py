"""Capacity of a cluster for the workers of a run: checked, waited for, and followed as nodes come and go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray.autoscaler.sdk import request_resources

from xalign_ray.config.derive import FEED_CPUS
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.errors import ConfigError, NotPlacedError, StoppedError, WorkersDiedError
from xalign_ray.private.ray import draining_nodes, free_resources, nodes_of_workers
from xalign_ray.sources.stage import check_placement, placement
from xalign_ray.track.events import EventReader
from xalign_ray.train.worker import StopRequest
from xalign_ray.work import process
from xalign_ray.work.status_line import say

RETRY_S = 1.0
SAY_S = 30.0  # between two sentences on what is waited for


def resources_of(parallel: ParallelConfig) -> dict[str, float]:
    """What a training process reserves of its node."""
    return {"CPU": parallel.cpus_per_worker} | ({"GPU": parallel.gpus_per_worker} if parallel.gpus_per_worker else {})


def wait_for_room(parallel: ParallelConfig) -> ParallelConfig:
    """Until the cluster has room, at most `parallel.nodes_timeout_s`; meanwhile its autoscaler is asked for the nodes.

    Returns:
        The same, or, where the recipe has `min_workers`, as many workers as there is room for.

    Raises:
        ConfigError: it cannot, or not in time; says what is asked for and what is there.
    """
    began, said, last = time.monotonic(), 0.0, ""
    try:
        while True:
            try:
                return fit(parallel)
            except ConfigError as lacking:
                waited = time.monotonic() - began
                if waited >= parallel.nodes_timeout_s:
                    late = f" Waited {waited:.0f} s for more nodes (parallel.nodes_timeout_s)." if waited > 1 else ""
                    raise ConfigError(f"{lacking}{late}") from None
                if str(lacking) != last or waited - said >= SAY_S:
                    of_feed = {"CPU": FEED_CPUS} | placement(parallel).get("resources", {})
                    request_resources(
                        bundles=[resources_of(parallel)] * parallel.workers + [of_feed],
                        bundle_label_selectors=[dict(parallel.node_labels)] * parallel.workers + [{}],
                    )
                    left, said, last = parallel.nodes_timeout_s - waited, waited, str(lacking)
                    say(f"waiting for nodes, at most {left:.0f} s more: {lacking}")
            time.sleep(RETRY_S)
    finally:
        if last:
            request_resources(bundles=[])  # from now on the reservation itself is the demand


def fit(parallel: ParallelConfig) -> ParallelConfig:
    """As many workers as the cluster can hold, of those that the recipe allows.

    Raises:
        ConfigError: it cannot hold the fewest.
    """
    for workers in range(parallel.workers, parallel.min_workers or parallel.workers, -1):
        with suppress(ConfigError):
            check_cluster(smaller := parallel.model_copy(update={"workers": workers}))
            return smaller
    fewest = parallel.model_copy(update={"workers": parallel.min_workers or parallel.workers})
    check_cluster(fewest)
    return fewest


def has_free(parallel: ParallelConfig, more: int) -> bool:
    """Whether the cluster has room for so many more workers, with all that runs there now."""
    free = free_resources()
    nodes = [node | {"Resources": free.get(node["NodeID"], {})} for node in lasting_nodes()]
    return _ROOM[parallel.placement_strategy]([_held_by(node, parallel) for node in nodes]) >= more


def fit_free(parallel: ParallelConfig) -> ParallelConfig:
    """As many workers as there is room for beside all that runs now, but no fewer than the recipe allows."""
    fewest = parallel.min_workers or parallel.workers
    there = (workers for workers in range(parallel.workers, fewest, -1) if has_free(parallel, workers))
    return parallel.model_copy(update={"workers": next(there, fewest)})


def lasting_nodes() -> list[dict[str, Any]]:
    """The living nodes but those that are drained."""
    drained = draining_nodes()
    return [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in drained]


def check_cluster(parallel: ParallelConfig) -> None:
    """Finds out before anything is reserved whether the joined cluster can hold the workers and their feed.

    A node that is drained does not count.

    Raises:
        ConfigError: it cannot, or no node may run data tasks; says what is asked for and what is there.
    """
    nodes = lasting_nodes()
    cpus, gpus = (sum(node["Resources"].get(name, 0) for node in nodes) for name in ("CPU", "GPU"))
    asked = parallel.workers * parallel.cpus_per_worker + FEED_CPUS
    if asked > cpus:
        raise ConfigError(
            f"parallel.workers {parallel.workers} x parallel.cpus_per_worker {parallel.cpus_per_worker:g} and "
            f"{FEED_CPUS} CPU for the feed are {asked:g} CPUs; the cluster has {cpus:g}. Lower one of the two, or "
            f"start nodes with more logical CPUs (ray start --num-cpus)."
        )
    asked = parallel.workers * parallel.gpus_per_worker
    if asked > gpus:
        raise ConfigError(
            f"parallel.workers {parallel.workers} x parallel.gpus_per_worker {parallel.gpus_per_worker:g} are "
            f"{asked:g} GPUs; the cluster has {gpus:g}."
        )
    held = [_held_by(node, parallel) for node in nodes]
    if (room := _ROOM[parallel.placement_strategy](held)) < parallel.workers:
        raise ConfigError(
            f"parallel.workers is {parallel.workers}, and the cluster has room for {room}: placement_strategy "
            f"{parallel.placement_strategy}, each with {_describe(parallel)}; its {len(held)} nodes hold "
            f"{', '.join(map(str, held))}."
        )
    check_placement(parallel)


_ROOM = {
    "PACK": sum,
    "SPREAD": sum,
    "STRICT_PACK": max,
    "STRICT_SPREAD": lambda held: sum(map(bool, held)),
}


def _held_by(node: Mapping[str, Any], parallel: ParallelConfig) -> int:
    """How many workers a node holds when nothing else runs on it."""
    if not all(_has(node["Labels"].get(key), wanted) for key, wanted in parallel.node_labels.items()):
        return 0
    return int(min(node["Resources"].get(name, 0) / amount + 1e-9 for name, amount in resources_of(parallel).items()))


def _has(value: str | None, wanted: str) -> bool:
    """Whether a label is as Ray's selector wants it: `v`, `!v`, `in(v,w)` or `!in(v,w)`."""
    none_of, wanted = wanted.startswith("!"), wanted.removeprefix("!")
    among = wanted[3:-1].split(",") if wanted.startswith("in(") else [wanted]
    return (value in [one.strip() for one in among]) != none_of


def _describe(parallel: ParallelConfig) -> str:
    said = [f"{amount:g} {name}" for name, amount in resources_of(parallel).items()]
    said += [f"label {key}={value}" for key, value in parallel.node_labels.items()]
    return ", ".join(said)


LOOK_S = 2.0  # how often the nodes are counted
STEADY_S = 10.0  # how long there has been room before it is used: a node may come and go
GROWS, MOVES = "room for more workers", "a node is drained"  # why the job stops, where a signal's name would be

Attempt = Callable[[ParallelConfig, StopRequest], None]


def run_on_nodes(parallel: ParallelConfig, log: Path, attempt: Attempt) -> None:
    """Trains to the last step on nodes that come and go.

    With `parallel.min_workers` there are as many workers as there is room for. A worker on a node that is drained
    (Kubernetes, spot machines) is moved before the node dies: the step in progress is saved.

    Args:
        parallel: the recipe's.
        log: the run's events.
        attempt: trains with a number of workers, until it ends or hears a request to stop; without
            `parallel.min_workers` it starts dead workers again itself.

    Raises:
        ConfigError: there is no room for the fewest, and no autoscaler has brought nodes in time.
        WorkersDiedError: more often than `parallel.max_failures`.
        StoppedError: by another than us.
    """
    is_elastic = parallel.min_workers is not None
    deaths, placed = 0, True
    while True:
        now, stop = wait_for_room(parallel), StopRequest()
        now, placed = now if placed else fit_free(now), True
        if now.workers < parallel.workers:
            say(f"training with {now.workers} of {parallel.workers} workers (parallel.min_workers)")
        try:
            with _watched(parallel, now.workers, log, stop) as why:
                return attempt(now, stop)
        except StoppedError:
            if not why or process.asked():
                raise
            say(f"the workers start again: {why[0]}")
        except NotPlacedError:
            if not is_elastic:
                raise
            placed = False
            say("the cluster's nodes have other work; waiting for room for the workers")
        except WorkersDiedError as died:
            deaths += 1
            if not is_elastic or deaths > parallel.max_failures:
                raise
            say(f"workers were lost; going on from the newest checkpoint: {died.why}")


@contextmanager
def _watched(parallel: ParallelConfig, workers: int, log: Path, stop: StopRequest) -> Iterator[list[str]]:
    """Inside, a thread asks the attempt to stop for another one, and adds why to the list.

    For a larger one not before the attempt has saved something: nodes that come and go must not keep a run from going
    on. Away from a node that is drained at once, if there is room elsewhere or an autoscaler may bring it.
    """
    why, over, saved, may_grow = list[str](), threading.Event(), EventReader(log), workers < parallel.workers
    for _ in saved.stream() if may_grow else ():
        pass  # of earlier attempts

    def look() -> None:
        steady, has_saved, has_said = 0.0, False, False
        while not over.wait(LOOK_S):
            if may_grow:
                has_saved = has_saved or any(event["event"] == "checkpoint" for event in saved.read())
                steady = steady + LOOK_S if _has_room(parallel, workers) else 0.0
            drained = draining_nodes()
            if drained and (leaving := sum(node in drained for node in nodes_of_workers())):
                if _can_move(parallel, leaving):
                    why.append(MOVES)
                elif not has_said:
                    say(f"{MOVES}, and its workers have no room elsewhere; they stay until it goes")
                    has_said = True
            elif has_saved and steady >= STEADY_S:
                why.append(GROWS)
            if why and stop.ask(why[0]):
                return

    def watch() -> None:
        with suppress(Exception):  # the cluster may be what has died; whoever waits for the workers says so
            look()

    thread = threading.Thread(target=watch, name="nodes", daemon=True)
    if may_grow or parallel.nodes_timeout_s or len(lasting_nodes()) > 1:  # else there is nowhere to go
        thread.start()
    try:
        yield why
    finally:
        over.set()
        if thread.is_alive():
            thread.join(LOOK_S)  # no longer: of a cluster that has died it gets no answer


def _can_move(parallel: ParallelConfig, leaving: int) -> bool:
    """Whether the nodes that stay can hold the fewest workers, of which so many leave theirs, or others may come."""
    if parallel.nodes_timeout_s or parallel.min_workers is None:
        return bool(parallel.nodes_timeout_s) or has_free(parallel, leaving)
    with suppress(ConfigError):
        return bool(fit(parallel))
    return False


def _has_room(parallel: ParallelConfig, workers: int) -> bool:
    with suppress(ConfigError):
        larger = fit(parallel).workers
        return larger > workers and has_free(parallel, larger - workers)
    return False
