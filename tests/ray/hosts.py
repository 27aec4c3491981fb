"""Hosts on one machine: Linux namespaces give each a network card, processes, a name, /tmp/ray and /dev/shm of its own.

What crosses from one to another crosses a network, which a test may cut; a host that is powered off leaves nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.pages import ROOT
from tests.ray.head import BIN
from tests.ray.runs import PATIENCE_S, pids

NAMESPACES = ("--net", "--mount", "--uts", "--pid")
needs_hosts = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="network namespaces are made by root on Linux"
)


class Host:
    """A machine that a test may power off, start again and unplug."""

    def __init__(self, name: str, folder: Path) -> None:
        """`folder` holds what is on its disk: Ray's files, and the names of all hosts."""
        self.name = name
        self._disk = folder / name
        self._hosts = folder / "hosts"
        (self._disk / "ray").mkdir(parents=True)

    def power_on(self, address: str = "") -> None:
        """With a network card that nobody has plugged in yet; `address` is that of the card."""
        Path("/tmp/ray").mkdir(exist_ok=True)
        own = f"mount --bind {self._disk / 'ray'} /tmp/ray; mount --bind {self._hosts} /etc/hosts"
        script = f"hostname {self.name}; {own}; mount -t tmpfs none /dev/shm; ip link set lo up"
        # The first process of a host takes over what loses its parent, and must not keep what has ended as zombies.
        first = ["sh", "-ec", f"{script}; exec env --ignore-signal=CHLD sleep infinity"]
        self._holder = subprocess.Popen(["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", *first])
        until = time.monotonic() + PATIENCE_S
        while not (found := pids("sleep infinity", below=self._holder.pid)):
            assert self._holder.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        self.pid = found[0]  # what the script runs before is below it
        self.address = address

    def power_off(self) -> None:
        """At once: the kernel kills whatever runs there, and the cable leads nowhere."""
        psutil.Process(self.pid).kill()
        self._holder.wait(timeout=PATIENCE_S)

    def command(self, *words: str | Path) -> list[str]:
        """A command line that runs these words there, in the repository."""
        entered = ["nsenter", "--target", str(self.pid), *NAMESPACES, f"--wd={ROOT}"]
        return [*entered, "--", *map(str, words)]

    def run(self, *words: str | Path, environment: dict[str, str] | None = None) -> str:
        """What a command says there that ends well."""
        done = subprocess.run(
            self.command(*words), env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def pids(self, title: str) -> list[int]:
        """Living processes with this title there, as this machine numbers them."""
        ours = os.readlink(f"/proc/{self.pid}/ns/pid")
        return [pid for pid in pids(title) if _namespace(pid) == ours]


class Network:
    """Hosts by name at one switch; the environment of commands on them."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        addresses = {name: f"10.0.0.{number}" for number, name in enumerate(names, start=1)}
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
        (folder / "hosts").write_text("\n".join(lines) + "\n")
        kept = {key: os.environ[key] for key in ("HOME", "LANG") if key in os.environ}  # what a login there would have
        self.environment = kept | {"PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        self.environment["GRPC_DNS_RESOLVER"] = "native"  # gRPC's own asks name servers first, and there are none
        self._switch = Host("switch", folder)
        self._switch.power_on()
        self._switch.run("sh", "-ec", "ip link add bridge type bridge; ip link set bridge up")
        self.hosts = {name: Host(name, folder) for name in names}
        for name, address in addresses.items():
            self.power_on(name, address)

    def power_on(self, name: str, address: str = "") -> None:
        """Starts a host, or one that was powered off anew, and plugs it in."""
        host = self.hosts[name]
        host.power_on(address or host.address)
        card = f"ip link add eth0 netns {host.pid} type veth peer name {name} netns {self._switch.pid}"
        subprocess.run(card.split(), check=True)
        host.run(
            "sh", "-ec", f"ip addr add {host.address}/24 dev eth0; ip link set eth0 up; ip route add default dev eth0"
        )
        self._switch.run("sh", "-ec", f"ip link set {name} master bridge; ip link set {name} up")

    def plug(self, name: str, into: bool) -> None:
        """Pulls a host's cable or plugs it in again."""
        self._switch.run("ip", "link", "set", name, "up" if into else "down")

    def close(self) -> None:
        for host in [*self.hosts.values(), self._switch]:
            if psutil.pid_exists(host.pid):
                host.power_off()


@contextmanager
def network(folder: Path, *names: str) -> Iterator[Network]:
    """Hosts with these names; nothing of them is left afterwards."""
    found = Network(folder, names)
    try:
        yield found
    finally:
        found.close()


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""
