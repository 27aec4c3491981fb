"""A head that the page on clusters starts, and commands that run beside it while a test watches what they say."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.pages import ROOT, command, commands
from tests.ray.runs import PATIENCE_S

PAGE = "on_a_cluster.md"
BIN = Path(sys.executable).parent
FEWER = {"RAY_prestart_worker_first_driver": "0"}  # no job here runs in a worker that Ray starts before it is asked


class Cluster:
    """The page's `ray start --head` in a folder and on ports of its own; nothing of it is left after `kill`."""

    def __init__(self, *options: str, cpus: int) -> None:
        """Starts it.

        Args:
            options: of `ray start`, besides.
            cpus: of the head.
        """
        self.folder = Path(tempfile.mkdtemp(prefix="xa-"))  # short: a socket's path has at most 107 characters
        port, dashboard, client, agent, agent_grpc = free_ports(5)
        self.address = f"http://127.0.0.1:{dashboard}"
        self.job_doors = [f"{dashboard}/api/jobs/", f"{agent}/api/job_agent/jobs/"]  # each by port and path
        self.ray_address = f"127.0.0.1:{port}"
        settings = {"RAY_DISABLE_MEMORY_MONITOR": "1", "OMP_NUM_THREADS": "1", "RAY_API_SERVER_ADDRESS": self.address}
        left_out = {"RAY_ADDRESS", "PYTHONPATH", "RAY_AUTH_TOKEN"}
        self.environment = {key: value for key, value in os.environ.items() if key not in left_out} | settings
        self.environment |= FEWER | self._make_token()
        self.environment["PATH"] = f"{BIN}:{os.environ['PATH']}"
        self._log = self.folder / "head.log"
        with self._log.open("wb") as log:
            self._head = subprocess.Popen(
                [
                    *(*command(PAGE, "ray start --head"), "--port", str(port), "--temp-dir", self.folder / "ray"),
                    *("--disable-usage-stats", "--num-cpus", str(cpus), *options),
                    *("--include-dashboard", "true", "--dashboard-port", str(dashboard)),
                    *("--ray-client-server-port", str(client), "--dashboard-agent-listen-port", str(agent)),
                    *("--dashboard-agent-grpc-port", str(agent_grpc), "--min-worker-port", "0"),
                    *("--max-worker-port", "0", "--object-store-memory", "200000000"),
                ],
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )

    def _make_token(self) -> dict[str, str]:
        """As the page does it; what it then exports."""
        make = " && ".join(line for line in commands(PAGE) if line.startswith(("openssl", "chmod")))
        subprocess.run(make.replace("/shared", str(self.folder)), shell=True, check=True)
        self.token = (self.folder / "ray_token").read_text().strip()
        assert (self.folder / "ray_token").stat().st_mode & 0o77 == 0
        words = [word.replace("/shared", str(self.folder)) for word in command(PAGE, "export RAY_AUTH_MODE")[1:]]
        return dict(word.split("=", 1) for word in words)

    def run(self, *words: str | Path) -> str:
        """What a command says that ends well, in the repository."""
        done = subprocess.run(
            words, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def pid(self) -> int:
        return self._head.pid

    def wait_until_up(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert time.monotonic() < until, self._log.read_text()
            assert self._head.poll() is None, self._log.read_text()
            time.sleep(0.3)

    def _answers(self) -> bool:
        """Whether the dashboard takes jobs: its agent, which runs them, is up later than its first page."""
        token = {"Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(f"{self.address}/api/jobs/", headers=token)
        with suppress(OSError), urllib.request.urlopen(request, timeout=2) as answer:
            return answer.status == 200
        return False

    def kill(self) -> None:
        """Kills hard and by process: `ray stop` would end every cluster of the machine, SIGTERM leaves gcs_server."""
        with suppress(psutil.NoSuchProcess):
            head = psutil.Process(self._head.pid)
            everything = [*head.children(recursive=True), head]
            for process in everything:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self._head.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def running(*options: str, cpus: int = 4) -> Iterator[Cluster]:
    """A cluster that takes jobs; nothing of it is left afterwards."""
    cluster = Cluster(*options, cpus=cpus)
    try:
        cluster.wait_until_up()
        yield cluster
    finally:
        cluster.kill()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Job:
    """A command whose output is kept in a file, so that a failure can show how far it came."""

    def __init__(self, command: list[str | Path], environment: dict[str, str], said: Path) -> None:
        self._said = said
        with said.open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def said(self) -> str:
        return self._said.read_text(errors="replace")

    def wait_for(self, happened: Callable[[], bool]) -> None:
        """Until something has happened while the job runs."""
        until = time.monotonic() + PATIENCE_S
        while not happened():
            assert time.monotonic() < until, self.said()
            assert self._process.poll() is None, self.said()
            time.sleep(0.2)

    def wait_to_end(self, look: Callable[[], None]) -> None:
        """Looks at something as long as the job runs."""
        until = time.monotonic() + PATIENCE_S
        while not self.has_ended:
            assert time.monotonic() < until, self.said()
            look()
            time.sleep(0.3)  # to look at all processes takes a core

    def end(self) -> int:
        """Its exit code."""
        return self._process.wait(timeout=PATIENCE_S)

    def kill(self) -> None:
        """With whatever it started."""
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self._process.kill()
        self._process.wait()
