"""The feed disturbed for real: its processes killed, a rank that stutters, nobody who reads."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest
import ray
from ray.data.block import BlockAccessor

from tests.parity.train.pool import Pool
from tests.ray.runs import (
    BLOCK_SERVER,
    DATA_TASK,
    PATIENCE_S,
    TRAIN_WORKER,
    Curve,
    calm,
    check_rows,
    events,
    on_ray,
    pids,
    reached,
    starts,
    when,
)
from tests.ray.small import batches, recipe
from xalign_ray.config import derive
from xalign_ray.config.schema import RunConfig
from xalign_ray.data import feed
from xalign_ray.data.batches import BatchReader
from xalign_ray.data.prepare import prepare

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]
STEPS = 96  # six chunks: more blocks than a feed makes in its first second
STUTTERS_FROM, SERVER_DIES_AT = 18, 33  # a block server is not needed once it has made the last block, from step 63 on
SIZES = batches(24, 12, STEPS, saved_every=20)


@pytest.fixture(scope="module")
def config(world: list[str]) -> RunConfig:
    return recipe([*world, *SIZES], "parallel.data_cpus=1")


@pytest.fixture(scope="module")
def expected(config: RunConfig, two: Pool, tmp_path_factory: pytest.TempPathFactory) -> Curve:
    return calm(two, config, tmp_path_factory.mktemp("calm"))


def test_only_a_killed_block_server_costs_a_restart_and_nothing_costs_a_row(
    config: RunConfig, expected: Curve, tmp_path: Path
) -> None:
    """Data tasks are killed and a rank stutters, and the run goes on as it is; then the block server is killed."""
    killed: set[int] = set()
    stopped: list[float] = []

    def kill() -> None:
        for pid in set(pids(DATA_TASK)) - killed:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)

    def stutter() -> None:
        """Stops rank 1 for most of the time until more steps are done."""
        slow, done = psutil.Process(pids(TRAIN_WORKER)[1]), reached(tmp_path, SERVER_DIES_AT)
        while not done():
            slow.suspend()
            time.sleep(0.3)
            slow.resume()
            stopped.append(0.3)
            time.sleep(0.1)

    def kill_server() -> None:
        assert not killer.is_alive()
        os.kill(pids(BLOCK_SERVER)[0], signal.SIGKILL)

    at_work = (lambda: set(pids(DATA_TASK)) - killed, kill)
    killer = when(at_work, at_work)
    slow = when((reached(tmp_path, STUTTERS_FROM), stutter), (lambda: True, kill_server))
    assert on_ray(config, tmp_path) == expected
    slow.join(1)
    assert not slow.is_alive()
    assert len(killed) >= 2
    assert len(stopped) >= 3
    assert starts(tmp_path) in ([0, 40], [0, 60], [0, 80])  # what it had handed over was still trained on
    check_rows(tmp_path, expected)
    said = next(event["feed"] for event in events(tmp_path) if event["event"] == "start")
    block = said["block_steps"] * 12 * BatchReader(prepare(config), config).parts[0].row_bytes / (1 << 20)
    assert 0 < said["block_mib"] <= 16
    assert said["block_mib"] == pytest.approx(block, abs=0.1)
    assert said["ahead_mib"] == pytest.approx(128 + 3 * block, abs=0.2), "what is made ahead is bounded, and told"


def stored() -> float:
    """Bytes in the object store."""
    whole = ray.cluster_resources()["object_store_memory"]
    return whole - ray.available_resources().get("object_store_memory", 0.0)


def test_a_feed_that_nobody_reads_stops_at_its_limit(world: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow rank's blocks wait in the store: as many as the limit allows, however long the run is."""
    before = stored()
    config = recipe(world, *batches(256, 128, 12800, saved_every=1000), "parallel.data_cpus=0.5")
    monkeypatch.setattr(feed, "STORE_BYTES", 8 << 20)
    monkeypatch.setattr(derive, "BLOCK_BYTES", 1 << 20)
    server = feed.BlockServer(str(prepare(config).folder), config.model_dump_json(), 0)
    (reference,) = server.get(0, 0)
    columns = BlockAccessor.for_block(ray.get(reference)).to_numpy()
    assert isinstance(columns, dict)
    step, limit = sum(column.nbytes for column in columns.values()), 2 * feed.STORE_BYTES
    assert 2 * 12800 * step > 50 * limit
    quiet_since, until = time.monotonic(), time.monotonic() + PATIENCE_S
    while (held := stored() - before) <= limit / 2 or time.monotonic() < quiet_since + 3:
        assert held < 3 * limit  # of more than 50: what runs when the limit is reached is finished
        assert time.monotonic() < until
        if pids(DATA_TASK):
            quiet_since = time.monotonic()
        time.sleep(0.1)
    server.made.close()
