"""A cluster of two nodes that loses one, and data tasks that stay on the nodes they were given."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray.cluster_utils import Cluster
from ray.core.generated.autoscaler_pb2 import DrainNodeReason

from tests.parity.train.pool import Pool
from tests.ray.runs import (
    BLOCK_SERVER,
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
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.train.cluster import connect

pytestmark = [pytest.mark.ray, pytest.mark.long]
STEPS, SAVED_EVERY, DEATH_AT = 60, 10, 25
SIZES = batches(24, 12, STEPS, SAVED_EVERY)
SECOND = {"num_cpus": 2, "resources": {"reader": 1}}
STORE = 100 << 20
NOTICED_SOON = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}


class TwoNodes:
    """A head with three CPUs and a second node with two and the resource `reader`, which a test may remove."""

    def __init__(self) -> None:
        head = {"num_cpus": 3, "object_store_memory": STORE, "include_dashboard": False}
        head |= {"_system_config": NOTICED_SOON}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.address = self._cluster.address
        self._cluster._shutdown_at_exit = False  # its signal handler cannot be set in the thread that replaces a node
        self.add()

    def add(self) -> None:
        self.second = self._cluster.add_node(**SECOND, object_store_memory=STORE)

    def replace(self) -> None:
        """The second node dies; another one joins."""
        self.remove()
        self.add()

    def remove(self) -> None:
        """Kills every process of the second node at once, so that none can say goodbye."""
        working = self.on_second("")
        self._cluster.remove_node(self.second, allow_graceful=False)
        for pid in working:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def drain(self) -> None:
        """As Kubernetes or a cloud does with a machine that it takes back: the node takes nothing new from now on."""
        reason = DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
        deadline_ms = int(1000 * (time.time() + 120))
        gcs = ray._raylet.GcsClient(address=self.address)
        assert gcs.drain_node(self.second.node_id, reason, "taken back", deadline_ms) == (True, "")

    def on_second(self, title: str) -> list[int]:
        """Living processes with this title on the second node."""
        raylet = self.second.all_processes["raylet"][0].process.pid
        return pids(title, below=raylet)

    def close(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def nodes() -> Iterator[TwoNodes]:
    ray.shutdown()  # the cluster of other files
    with pytest.MonkeyPatch.context() as patch:
        folder = tempfile.mkdtemp(prefix="xa-")  # short: a socket's path has at most 107 characters
        patch.setenv("RAY_TMPDIR", folder)  # or another session on this machine would find this cluster as its own
        patch.setenv("RAY_AUTH_MODE", "token")
        ray._raylet.Config.initialize("")  # this process may have read another mode
        both = TwoNodes()
        patch.setenv("RAY_ADDRESS", both.address)
        connect(ParallelConfig())
        yield both
        ray.shutdown()
        both.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def expected(world: list[str], two: Pool, tmp_path_factory: pytest.TempPathFactory) -> Curve:
    return calm(two, recipe([*world, *SIZES]), tmp_path_factory.mktemp("calm"))


def recorded() -> dict[bytes, tuple[str, str]]:
    """Each data task, and call of the feed's actor, that Ray has recorded so far: its name and its node."""
    events = [(event.task_id, event.task_info.name, event.state_updates.node_id.hex()) for event in all_events()]
    return {task: (name, node) for task, name, node in events if node and name.startswith(("Map", "BlockServer.get"))}


def since(before: Collection[bytes]) -> list[tuple[str, str]]:
    """What has been recorded beyond these tasks."""
    return [found for task, found in recorded().items() if task not in before]


def all_events() -> list[Any]:
    return ray._private.state.state._get_all_task_events()


def test_a_node_with_a_worker_and_the_feed_dies_and_is_replaced_and_data_tasks_run_only_where_the_recipe_says(
    nodes: TwoNodes, world: list[str], expected: Curve, tmp_path: Path
) -> None:
    """Preparing, too: its shards go to a folder of their own, so that they are made here."""
    one_on_each = ["parallel.cpus_per_worker=1.6", "parallel.data_cpus=0.2", "parallel.data_resource=reader"]
    config = recipe([*world, *SIZES], f"output={tmp_path}", *one_on_each)
    held, before, readers = [], recorded().keys(), [nodes.second.node_id]

    def replace() -> None:
        held.extend([len(nodes.on_second(TRAIN_WORKER)), len(nodes.on_second(BLOCK_SERVER))])
        nodes.replace()
        readers.append(nodes.second.node_id)

    death = when((reached(tmp_path / "run", DEATH_AT), replace))
    assert on_ray(config, tmp_path / "run") == expected
    death.join(1)
    assert held == [1, 1]
    assert len(starts(tmp_path / "run")) == 2
    check_rows(tmp_path / "run", expected)
    kinds = {"Map(_do_row)", "MapBatches(_make_blocks)", "BlockServer.get"}
    until = time.monotonic() + 20  # nodes tell of their tasks once a second
    while {name for name, _ in since(before)} < kinds and time.monotonic() < until:
        time.sleep(0.2)
    assert {name for name, _ in since(before)} == kinds
    assert {node for _, node in since(before)} <= set(readers)


def test_a_node_with_data_tasks_dies_and_the_other_goes_on_alone(
    nodes: TwoNodes, world: list[str], expected: Curve, tmp_path: Path
) -> None:
    # The worker on the head, whose CPUs are then taken but for one data task.
    config = recipe([*world, *SIZES], "parallel.workers=1", "parallel.cpus_per_worker=2.4", "parallel.data_cpus=0.5")
    lost, before, workers_lost = nodes.second.node_id, recorded().keys(), [-1]

    def remove() -> None:
        workers_lost[0] = len(nodes.on_second(TRAIN_WORKER))
        nodes.remove()

    death = when((reached(tmp_path, 2), remove))
    alone = on_ray(config, tmp_path)
    death.join(1)
    nodes.add()
    assert [loss for _, loss in alone] == pytest.approx([loss for _, loss in expected], rel=1e-3)
    assert lost in {node for _, node in since(before)}
    assert workers_lost == [0]
    assert len(starts(tmp_path)) <= 2
    check_rows(tmp_path, expected)


def test_a_run_leaves_a_drained_node_before_it_dies_and_loses_no_step(
    nodes: TwoNodes,
    world: list[str],
    expected: Curve,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A worker a node; what is left is one worker, and a node that is drained does not count as room."""
    config = recipe(
        [*world, *SIZES], "parallel.cpus_per_worker=1.6", "parallel.data_cpus=0.2", "parallel.min_workers=1"
    )
    on_drained: list[int] = []

    def drain() -> None:
        on_drained.append(len(nodes.on_second(TRAIN_WORKER)))
        nodes.drain()

    def die() -> None:
        on_drained.append(len(nodes.on_second(TRAIN_WORKER)))
        nodes.remove()

    turns = when((reached(tmp_path, DEATH_AT), drain), (reached(tmp_path, DEATH_AT, attempt=2), die))
    moved = on_ray(config, tmp_path)
    turns.join(1)
    nodes.add()
    assert on_drained == [1, 0]
    first, second = starts(tmp_path)
    assert first == 0
    assert DEATH_AT <= second < STEPS
    done = [event["step"] for event in events(tmp_path) if event["event"] == "step"]
    assert done == list(range(1, STEPS + 1))  # none twice: what was done on the drained node was saved
    assert [loss for _, loss in moved] == pytest.approx([loss for _, loss in expected], rel=1e-3)
    check_rows(tmp_path, expected)
    assert "the workers start again: a node is drained" in capsys.readouterr().err


def test_a_run_goes_on_smaller_when_a_node_is_lost_and_grows_without_losing_a_step_when_one_joins(
    nodes: TwoNodes, world: list[str], expected: Curve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = recipe(
        [*world, *SIZES], "parallel.cpus_per_worker=1.6", "parallel.data_cpus=0.2", "parallel.min_workers=1",
        "parallel.ray.elastic_resize_monitor_interval_s=1",
    )  # fmt: skip

    def join() -> None:
        (alone,) = pids(TRAIN_WORKER)
        psutil.Process(alone).suspend()  # a run of seconds would be over before the node has joined
        nodes.add()
        time.sleep(5)
        psutil.Process(alone).resume()

    turns = when((reached(tmp_path, DEATH_AT), nodes.remove), (reached(tmp_path, DEATH_AT, attempt=2), join))
    resized = on_ray(config, tmp_path)
    turns.join(1)
    assert [event["workers"] for event in events(tmp_path) if event["event"] == "start"] == [2, 1, 2]
    shrunk, grown = starts(tmp_path)[1:]
    assert shrunk % SAVED_EVERY == 0
    assert max(e["step"] for e in events(tmp_path) if e["event"] == "step" and e["attempt"] == 2) == grown
    assert [loss for _, loss in resized] == pytest.approx([loss for _, loss in expected], rel=1e-3)
    check_rows(tmp_path, expected)
    assert "the workers start again: room for more workers" in capsys.readouterr().err
