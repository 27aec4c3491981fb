"""What tests on real clusters share: a small world, and a cluster of one node."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

import pytest
import ray

from tests.ray.small import CUSTOM, recipe, write_world
from tests.unit.conftest import prepare_here
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.train.cluster import connect

# The tests' clusters and their clients have a token of their own: the user's file is neither read nor written.
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
os.environ.pop("RAY_AUTH_MODE", None)
os.environ |= {"RAY_metrics_report_interval_ms": "3000"}  # Ray's 10 s are long for a test that waits for a gauge
os.environ |= {"RAY_worker_niceness": "0"}  # Ray's 15 lets the tests beside these starve what these wait for


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Settings that point a tiny recipe to a small world, whose shards are there, made without Ray."""
    settings = write_world(tmp_path_factory.mktemp("world"))
    prepare_here(recipe(settings))
    return settings


@pytest.fixture(scope="session")
def _shut_down() -> Iterator[None]:
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def cluster(_shut_down: None) -> None:
    """A running local cluster for two workers and their feed: started by the first test that asks, kept to the end."""
    connect(ParallelConfig(workers=2, cpus_per_worker=0.5, data_resource=CUSTOM))
