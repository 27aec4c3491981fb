"""A cluster that xalign starts is closed: each socket of it is asked without a token, and a stranger cannot join."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
import ray

from tests.bench.sockets import LOOPBACK, METRICS, OPEN, TOKEN, Listening, closed_by, listening
from tests.ray.runs import on_ray
from tests.ray.small import batches, recipe

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]
JOIN = """
import sys
import ray
for address in sys.argv[1:]:
    try:
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
        assert ray.get(ray.remote(lambda: 7).remote()) == 7
        print("ran code")
    except Exception as error:
        print("refused:", type(error).__name__, str(error).split(".")[0])
    finally:
        ray.shutdown()
"""


def addresses_of_this_machine() -> list[str]:
    families = {socket.AF_INET, socket.AF_INET6}
    found = [one.address for each in psutil.net_if_addrs().values() for one in each if one.family in families]
    return [address for address in found if "%" not in address]  # link-local: another spelling of the same machine


def join(addresses: list[str], home: Path, **environment: str) -> list[str]:
    """What somebody of this machine, with this home and environment, gets from each address of the cluster."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", JOIN, *addresses],
        env=kept | {"HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_each_socket_of_a_run_is_on_loopback_or_behind_the_token(world: list[str], tmp_path: Path) -> None:
    seen: dict[Listening, str] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            for one in listening(os.getpid()):
                if one not in seen:
                    seen[one] = closed_by(one)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        on_ray(recipe(world, *batches(24, 12, 30, 15)), tmp_path / "run")
    finally:
        over.set()
        watching.join()
    assert {one: closed for one, closed in seen.items() if closed == OPEN} == {}
    assert {one.process for one, closed in seen.items() if closed == METRICS} <= {"monitor.py", "dashboard.py", AGENT}
    # What would be open if nobody had closed it: the store and Gloo of the training workers, and Ray's own.
    closed = {(one.process, closed) for one, closed in seen.items()}
    assert closed >= {(WORKER, LOOPBACK), (WORKER, TOKEN), ("gcs_server", TOKEN), ("raylet", TOKEN)}


AGENT, WORKER = "ray::DashboardAgent", "ray::RayTrainWorker"


def test_a_process_without_the_token_is_refused_at_every_address_and_one_with_it_is_not(tmp_path: Path) -> None:
    port = ray.get_runtime_context().gcs_address.rpartition(":")[2]
    everywhere = [f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in addresses_of_this_machine()]
    assert len(everywhere) >= 2
    for told in ({}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}):
        answers = join(everywhere, tmp_path, **told)
        assert len(answers) == len(everywhere)
        assert [one for one in answers if not one.startswith("refused: ")] == []
    lan = ray.get_runtime_context().gcs_address
    assert join([lan], tmp_path, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=os.environ["RAY_AUTH_TOKEN"]) == ["ran code"]
