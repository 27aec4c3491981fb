"""A run of four losses disturbed for real: its feed and a worker killed, a rank that stutters; a feed nobody reads."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import ray
from ray.data import DataContext
from ray.data.block import BlockAccessor

from tests.parity.train.pool import Pool
from tests.ray.runs import (
    BLOCK_SERVER,
    DATA_TASK,
    ONCE,
    PATIENCE_S,
    TRAIN_WORKER,
    Curve,
    actors,
    calm,
    check_rows,
    events,
    kill_worker,
    on_ray,
    pids,
    reached,
    sockets_watched,
    started_since,
    starts,
    when,
)
from tests.ray.small import batches, recipe, write_world
from tests.ray.sockets import LOOPBACK, METRICS, OPEN, TOKEN, Listening
from tests.unit.conftest import prepare_here
from xalign_ray.config import derive
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import TrainingError
from xalign_ray.feed import on_ray as feed
from xalign_ray.feed.batches import BatchReader
from xalign_ray.tokens.prepare import prepare

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]
STEPS, SAVED_EVERY = 128, 20  # four chunks: more blocks than a feed makes in its first second
STUTTERS_FROM, SERVER_DIES_AT = 18, 33  # a block server is not needed once it has made the last block, from step 95 on
WORKER_DIES_AT = 86  # of the second attempt
SIZES = batches(24, 12, STEPS, SAVED_EVERY, held_out_every=2 * SAVED_EVERY)
AGENT, WORKER = "ray::DashboardAgent", "ray::RayTrainWorker"


@dataclass(frozen=True)
class Disturbed:
    """A run of four losses, what was done to it, and the run that nothing disturbed.

    Attributes:
        killed_tasks, stops: data tasks that were killed, and how often a rank was stopped for a moment.
        expected, curve: of the calm run, and of this one.
        started: kinds of actors.
        sockets: that opened meanwhile, and what closed each of them.
    """

    config: RunConfig
    folder: Path
    killed_tasks: int
    stops: int
    expected: Curve
    curve: Curve
    started: set[str]
    sockets: dict[Listening, str]


@pytest.fixture(scope="module")
def disturbed(two: Pool, tmp_path_factory: pytest.TempPathFactory) -> Disturbed:
    """Data tasks are killed and a rank stutters, and the run goes on as it is; then the block server is killed, which
    costs the one restart that is allowed, then a worker, which ends the run; it is given again."""
    folder = tmp_path_factory.mktemp("disturbed")
    settings = [*write_world(folder, parallel=300), *SIZES, "objectives.3.queue_size=100", "parallel.max_failures=1"]
    config = recipe(settings, "model.hidden_dropout_prob=0.1", "parallel.data_cpus=1", name="tiny/all")
    assert [one.kind for one in config.objectives] == [
        "masked_lm",
        "dictionary_alignment",
        "word_exchange",
        "momentum_contrast",
    ]
    prepare_here(config)
    expected, run = calm(two, config, folder / "calm"), folder / "disturbed"
    killed: set[int] = set()
    stopped: list[float] = []

    def kill_tasks() -> None:
        for pid in set(pids(DATA_TASK)) - killed:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)

    def stutter() -> None:
        """Stops rank 1 for most of the time until more steps are done."""
        slow, done = psutil.Process(pids(TRAIN_WORKER)[1]), reached(run, SERVER_DIES_AT)
        while not done():
            slow.suspend()
            time.sleep(0.3)
            slow.resume()
            stopped.append(0.3)
            time.sleep(0.1)

    def kill_server() -> None:
        assert not killer.is_alive()
        os.kill(pids(BLOCK_SERVER)[0], signal.SIGKILL)

    at_work = (lambda: set(pids(DATA_TASK)) - killed, kill_tasks)
    killer = when(at_work, at_work)
    dies = (reached(run, WORKER_DIES_AT, attempt=2), kill_worker(1))
    others = when((reached(run, STUTTERS_FROM), stutter), (lambda: True, kill_server), dies)
    before = actors()
    with sockets_watched() as sockets:
        with pytest.raises(TrainingError, match=r"Workers failed more often than parallel.max_failures allows"):
            on_ray(config, run)
        others.join(1)
        assert not others.is_alive()
        found = on_ray(config, run)
    return Disturbed(config, run, len(killed), len(stopped), expected, found, started_since(before), sockets)


def test_only_a_killed_block_server_and_worker_cost_a_restart_and_nothing_costs_a_row(disturbed: Disturbed) -> None:
    assert disturbed.curve == disturbed.expected
    check_rows(disturbed.folder, disturbed.expected)
    asked = {"RayTrainWorker", "SynchronizationActor", "BlockServer"}
    assert asked <= disturbed.started <= asked | ONCE
    assert disturbed.killed_tasks >= 2
    assert disturbed.stops >= 3
    first, second, third = starts(disturbed.folder)
    assert first == 0
    assert second in (40, 60, 80)  # what the server had handed over was still trained on
    assert third in (60, 80, 100)  # a save is on disk when the next one begins
    assert third >= second
    said = next(event["feed"] for event in events(disturbed.folder) if event["event"] == "start")
    row_bytes = BatchReader(prepare(disturbed.config), disturbed.config).row_bytes
    block = said["block_steps"] * 12 * row_bytes / (1 << 20)
    assert 0 < said["block_mib"] <= 16
    assert said["block_mib"] == pytest.approx(block, abs=0.1)
    assert said["ahead_mib"] == pytest.approx(128 + 3 * block, abs=0.2), "what is made ahead is bounded, and told"


def test_each_socket_of_a_run_is_on_loopback_or_behind_the_token(disturbed: Disturbed) -> None:
    assert {one: closed for one, closed in disturbed.sockets.items() if closed == OPEN} == {}
    reading = {one.process for one, closed in disturbed.sockets.items() if closed == METRICS}
    assert reading <= {"monitor.py", "dashboard.py", AGENT}
    # What would be open if nobody had closed it: the store and Gloo of the training workers, and Ray's own.
    closed = {(one.process, closed) for one, closed in disturbed.sockets.items()}
    assert closed >= {(WORKER, LOOPBACK), (WORKER, TOKEN), ("gcs_server", TOKEN), ("raylet", TOKEN)}


def stored() -> float:
    """Bytes in the object store."""
    whole = ray.cluster_resources()["object_store_memory"]
    return whole - ray.available_resources().get("object_store_memory", 0.0)


def test_a_feed_that_nobody_reads_stops_at_its_limit(world: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow rank's blocks wait in the store: as many as the limit allows, however long the run is, and it waits."""
    before = stored()
    monkeypatch.setattr(DataContext.get_current(), "execution_no_progress_timeout_s", 1)  # by default half an hour
    config = recipe(world, *batches(256, 128, 12800, saved_every=1000), "parallel.data_cpus=1")
    monkeypatch.setattr(feed, "STORE_BYTES", 8 << 20)
    monkeypatch.setattr(derive, "BLOCK_BYTES", 1 << 20)
    server = feed.BlockServer(str(prepare(config).folder), config.model_dump_json())
    (reference,) = server.get(0, 0, 0)
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
    assert len(server.get(0, 0, 1)) == 1, "Ray Data has given up"
    assert server.made is not None
    server.made.close()
