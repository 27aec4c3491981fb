"""Where data tasks run: on the nodes that have the recipe's custom Ray resource, or on any."""

from __future__ import annotations

import json
import time
from typing import Any

import ray

from xalign_ray.config.schema import ParallelConfig
from xalign_ray.errors import ConfigError

A_BIT = 0.001  # of the resource: it only marks a node, what runs there at once is bounded by its CPUs
PATIENCE_S = 120  # for a node that takes the place of one that died
_NOT_CUSTOM = ("CPU", "GPU", "memory", "object_store_memory")


def placement(parallel: ParallelConfig) -> dict[str, Any]:
    """What Ray is asked for a data task or actor, besides its CPUs."""
    return {"resources": {parallel.data_resource: A_BIT}} if parallel.data_resource else {}


def check_placement(parallel: ParallelConfig) -> None:
    """Finds out whether a node of the joined cluster may run data tasks: Ray would wait for one without a word.

    Raises:
        ConfigError: none has the resource; says which there are.
    """
    name = parallel.data_resource
    if not name:
        return
    there = sorted(one for one in ray.cluster_resources() if one not in _NOT_CUSTOM and not one.startswith("node:"))
    if name not in there:
        raise ConfigError(
            f"parallel.data_resource is '{name}', but no node of the cluster has a custom resource of that name (there "
            f"is {', '.join(there) or 'none'}). Start the nodes that are to run data tasks with "
            f"ray start --resources='{json.dumps({name: 1})}', or set it to null to run them on any node."
        )


def wait_for_place(parallel: ParallelConfig) -> None:
    """As `check_placement`, in mid run: the last such node may have died, and another be on its way.

    Raises:
        ConfigError: none came within PATIENCE_S.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return check_placement(parallel)
        except ConfigError:
            if time.monotonic() > until:
                raise
        time.sleep(1)
