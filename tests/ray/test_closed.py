"""A cluster that xalign starts is closed: who has no token cannot join it, at any address."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
import ray

from tests.ray.runs import addresses_of_this_machine
from tests.ray.sockets import ask_grpc
from xalign_ray.train.cluster_address import UNAUTHENTICATED

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]
JOIN = """
import sys
import ray
try:
    ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
    assert ray.get(ray.remote(lambda: 7).remote()) == 7
    print("ran code")
except ConnectionError:
    print("refused")
"""


THROUGH_US = """
from xalign_ray.errors import ConfigError
from xalign_ray.train.cluster_address import check_named_cluster
try:
    check_named_cluster()
    print("joins")
except ConfigError as error:
    print(error)
"""


def join(address: str, home: Path, program: str = JOIN, **environment: str) -> subprocess.Popen[str]:
    """Somebody of this machine, with this home and environment, on the way into the cluster."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    command = [sys.executable, "-c", program, address]
    return subprocess.Popen(command, env=kept | {"HOME": str(home), **environment}, stdout=subprocess.PIPE, text=True)


def test_a_process_without_the_token_is_refused_at_every_address_and_one_with_it_is_not(tmp_path: Path) -> None:
    lan = ray.get_runtime_context().gcs_address
    port = int(lan.rpartition(":")[2])
    token, wrong = {"RAY_AUTH_TOKEN": os.environ["RAY_AUTH_TOKEN"]}, {"RAY_AUTH_TOKEN": "0" * 64}
    tries = [  # at once: Ray tries for 20 s
        join(f"127.0.0.1:{port}", tmp_path),
        join(lan, tmp_path),
        join(lan, tmp_path, RAY_AUTH_MODE="token", **wrong),
        join(lan, tmp_path, RAY_AUTH_MODE="token", **token),
    ]
    assert [one.communicate(timeout=120)[0].strip() for one in tries] == ["refused"] * 3 + ["ran code"]
    everywhere = addresses_of_this_machine()
    assert len(everywhere) >= 2
    for address in everywhere:
        name = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        assert ask_grpc(name) == {grpc.StatusCode.UNAUTHENTICATED}
        assert ask_grpc(name, token["RAY_AUTH_TOKEN"]) >= {grpc.StatusCode.OK}


REFUSED: dict[str, dict[str, str]] = {
    "no mode": {"RAY_AUTH_TOKEN": "{token}"},
    "no token": {"RAY_AUTH_MODE": "token"},
    "no file": {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "{home}/nope"},
    "wrong token": {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64},
}
RIGHT = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "{token}"}


@pytest.mark.parametrize("given", [*REFUSED.values(), RIGHT], ids=[*REFUSED, "right"])
def test_who_has_not_the_token_is_told_how_to_give_it(tmp_path: Path, given: dict[str, str]) -> None:
    lan = ray.get_runtime_context().gcs_address
    known = {"token": os.environ["RAY_AUTH_TOKEN"], "home": tmp_path}
    environment = {name: value.format(**known) for name, value in given.items()}
    client = join(lan, tmp_path, THROUGH_US, RAY_ADDRESS=lan, **environment)
    refused = f"The cluster at {lan}, which RAY_ADDRESS names, cannot be joined: {UNAUTHENTICATED}"
    assert client.communicate(timeout=120)[0].strip() == ("joins" if given is RIGHT else refused)
