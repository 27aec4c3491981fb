"""The process group of one machine is out of other machines' reach: its sockets listen at loopback only."""

from __future__ import annotations

import os

import psutil

from tests.parity.train.pool import Pool


def addresses(workers) -> set[str]:
    """Where this process listens, once the group has talked; by the interface, not by luck with the machine's name."""
    workers.barrier()
    assert os.environ["GLOO_SOCKET_IFNAME"] == os.environ["NCCL_SOCKET_IFNAME"]
    assert os.environ["GLOO_SOCKET_IFNAME"].startswith("lo")
    return {one.laddr.ip for one in psutil.Process(os.getpid()).net_connections("tcp") if one.status == "LISTEN"}


def test_a_plain_process_listens_at_loopback_only(one: Pool) -> None:
    (listening,) = one.call(addresses)
    assert listening <= {"127.0.0.1", "::1"}


def test_workers_of_one_machine_listen_at_loopback_but_for_the_launchers_store(two: Pool) -> None:
    first, second = two.call(addresses)
    assert second == {"127.0.0.1"}
    # Rank 0 has the store here, which torchrun has in its own process: torch opens it everywhere.
    assert first == {"127.0.0.1", "::"}
