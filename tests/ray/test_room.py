"""A run on a cluster that lacks nodes: it waits for them while they come, and is put on the ones that it names."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.pages import ROOT, command
from tests.ray.head import PAGE, Cluster, Job, free_ports, running
from tests.ray.runs import TRAIN_WORKER, pids
from tests.ray.small import batches
from xalign_ray.work.run_folder import RunFolder

pytestmark = [pytest.mark.ray, pytest.mark.long]
PLACED = ["parallel.workers=2", "parallel.cpus_per_worker=1", "parallel.ray.placement_strategy=STRICT_SPREAD"]
PLACED += ["parallel.ray.label_selector={role: trains}", "parallel.data_resource=reader"]
LACKS = (
    "parallel.workers is 2, and the cluster has room for 1: placement_strategy STRICT_SPREAD, each with 1 CPU, label "
    "role=trains;"
)
NODES = {  # by what each is given besides; a worker would fit on the second, which is not to train
    "first": ["--num-cpus", "1", "--labels", "role=trains"],
    "reads": ["--num-cpus", "2", "--labels", "role=reads", "--resources", json.dumps({"reader": 1})],
    "second": ["--num-cpus", "1", "--labels", "role=trains"],
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(cpus=0) as cluster:
        yield cluster


def own_ports() -> list[str]:
    """What keeps several nodes of one machine apart."""
    agent, agent_grpc = free_ports(2)
    ports = ["--dashboard-agent-listen-port", str(agent), "--dashboard-agent-grpc-port", str(agent_grpc)]
    return [*ports, "--min-worker-port", "0", "--max-worker-port", "0", "--object-store-memory", "100000000"]


def test_a_run_waits_for_nodes_and_its_workers_go_where_it_says(
    cluster: Cluster, world: list[str], tmp_path: Path
) -> None:
    settings = [*world, *batches(8, 4, 30, 30), f"output={tmp_path}", *PLACED]
    verb = [sys.executable, "-m", "xalign_ray", "pretrain", "tiny/mlm"]
    words = [*verb, *(word for setting in settings for word in ("--set", setting))]
    joined = cluster.environment | {"RAY_ADDRESS": cluster.ray_address, "PYTHONPATH": str(ROOT)}
    refused = subprocess.run(words, env=joined, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    said = "parallel.workers 2 x parallel.cpus_per_worker 1 and 1 CPU for the feed are 3 CPUs; the cluster has 0."
    assert said in refused.stderr
    with ExitStack() as ended:
        run = Job([*words, "--set", "parallel.nodes_timeout_s=200"], joined, tmp_path / "run.log")
        ended.callback(run.kill)
        run.wait_for(lambda: f"waiting for nodes, at most 200 s more: {said}" in run.said())
        join = [word.replace("HEAD:6379", cluster.ray_address) for word in command(PAGE, "ray start --block --address")]
        nodes = []
        for name, options in NODES.items():
            if name == "second":  # three CPUs are there by then, and one node too few that trains
                run.wait_for(lambda: f"{LACKS} its 3 nodes hold " in run.said())
            nodes.append(Job([*join, *options, *own_ports()], joined, tmp_path / f"{name}.log"))
            ended.callback(nodes[-1].kill)
            nodes[-1].wait_for(lambda: "Ray runtime started" in nodes[-1].said())  # two at once get in each other's way
        run.wait_for(lambda: [len(pids(TRAIN_WORKER, below=node.pid)) for node in nodes] == [1, 0, 1])
        assert run.end() == 0, run.said()
    (folder,) = tmp_path.glob("tiny-mlm-*")
    assert RunFolder(folder).manifest.is_file()
