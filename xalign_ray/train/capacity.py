"""Capacity of a cluster for the workers of a run: checked before anything is reserved, waited for, counted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import ray
from ray.autoscaler.sdk import request_resources

from xalign_ray.config.derive import FEED_CPUS
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.errors import ConfigError
from xalign_ray.private.ray import draining_nodes, free_resources
from xalign_ray.sources.stage import check_placement, placement
from xalign_ray.work.status_line import say

RETRY_S = 1.0
SAY_S = 30.0  # between two messages on the missing nodes


def resources_of(parallel: ParallelConfig) -> dict[str, float]:
    """The resources that a training process reserves of its node."""
    return {"CPU": parallel.cpus_per_worker} | ({"GPU": parallel.gpus_per_worker} if parallel.gpus_per_worker else {})


def labels_of(parallel: ParallelConfig) -> dict[str, str]:
    """The labels that a node of workers must have; of a list, which has one a worker, none are checked here."""
    labels = parallel.ray.get("label_selector")
    return {key: str(value) for key, value in labels.items()} if isinstance(labels, Mapping) else {}


def wait_for_room(parallel: ParallelConfig) -> None:
    """Waits until the cluster can hold the run, at most `parallel.nodes_timeout_s`; requests nodes of its autoscaler.

    Raises:
        ConfigError: it cannot hold the fewest workers, or not in time; names the demand and the resources.
    """
    fewest = parallel.model_copy(update={"workers": parallel.min_workers or parallel.workers})
    began, reported_at, last = time.monotonic(), 0.0, ""
    try:
        while True:
            try:
                return check_cluster(fewest)
            except ConfigError as lacking:
                waited = time.monotonic() - began
                if waited >= parallel.nodes_timeout_s:
                    late = f" Waited {waited:.0f} s for more nodes (parallel.nodes_timeout_s)." if waited > 1 else ""
                    raise ConfigError(f"{lacking}{late}") from None
                if str(lacking) != last or waited - reported_at >= SAY_S:
                    of_feed = {"CPU": FEED_CPUS} | placement(parallel).get("resources", {})
                    request_resources(
                        bundles=[resources_of(parallel)] * parallel.workers + [of_feed],
                        bundle_label_selectors=[labels_of(parallel)] * parallel.workers + [{}],
                    )
                    left, reported_at, last = parallel.nodes_timeout_s - waited, waited, str(lacking)
                    say(f"waiting for nodes, at most {left:.0f} s more: {lacking}")
            time.sleep(RETRY_S)
    finally:
        if last:
            request_resources(bundles=[])  # from now on the reservation itself is the demand


def most_workers(parallel: ParallelConfig) -> int:
    """As many workers as the nodes that stay can hold, of those that the recipe allows; 0 if they cannot hold these."""
    for workers in range(parallel.workers, (parallel.min_workers or parallel.workers) - 1, -1):
        with suppress(ConfigError):
            check_cluster(parallel.model_copy(update={"workers": workers}))
            return workers
    return 0


def has_free_place(parallel: ParallelConfig) -> bool:
    """Whether a node that stays has room for one more worker beside all that runs there now."""
    free = free_resources()
    return any(_held_by(node | {"Resources": free.get(node["NodeID"], {})}, parallel) for node in lasting_nodes())


def lasting_nodes() -> list[dict[str, Any]]:
    """The living nodes but those that are drained."""
    drained = draining_nodes()
    return [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in drained]


def check_cluster(parallel: ParallelConfig) -> None:
    """Finds out before anything is reserved whether the joined cluster can hold the workers and their feed.

    A node that is drained does not count.

    Raises:
        ConfigError: it cannot, or no node may run data tasks; names the demand and the resources.
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
    strategy = parallel.ray.get("placement_strategy", "PACK")
    if (room := _ROOM.get(strategy, sum)(held)) < parallel.workers:
        raise ConfigError(
            f"parallel.workers is {parallel.workers}, and the cluster has room for {room}: placement_strategy "
            f"{strategy}, each with {_describe(parallel)}; its {len(held)} nodes hold "
            f"{', '.join(map(str, held))}."
        )
    check_placement(parallel)


_ROOM = {"STRICT_PACK": max, "STRICT_SPREAD": lambda held: sum(map(bool, held))}  # of the workers that each node holds


def _held_by(node: Mapping[str, Any], parallel: ParallelConfig) -> int:
    """How many workers a node holds when nothing else runs on it."""
    if not all(_has(node["Labels"].get(key), wanted) for key, wanted in labels_of(parallel).items()):
        return 0
    there = node["Resources"]
    return int(min(there.get(name, 0) / amount + 1e-9 for name, amount in resources_of(parallel).items()))


def _has(value: str | None, wanted: str) -> bool:
    """Whether a label is as Ray's selector wants it: `v`, `!v`, `in(v,w)` or `!in(v,w)`."""
    none_of, wanted = wanted.startswith("!"), wanted.removeprefix("!")
    among = wanted[3:-1].split(",") if wanted.startswith("in(") else [wanted]
    return (value in [label.strip() for label in among]) != none_of


def _describe(parallel: ParallelConfig) -> str:
    demands = [f"{amount:g} {name}" for name, amount in resources_of(parallel).items()]
    demands += [f"label {key}={value}" for key, value in labels_of(parallel).items()]
    return ", ".join(demands)
