"""An MLflow server that tests kill, freeze and start again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil


class Server:
    """`mlflow server` on a port and a database of its own; killed and started again at will, started once at most."""

    def __init__(
        self,
        folder: Path,
        command: Sequence[str] = (),
        places: tuple[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            command: one that a page names; its port and its places are replaced.
            places: a database and where files go; SQLite and a folder if None.
            environment: what is set besides what this process has.
        """
        backend, files = places or (f"sqlite:///{folder}/mlflow.db", str(folder / "art"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{port}"
        self._command = [
            *(sys.executable, "-m", *(command or ("mlflow", "server", "--host", "127.0.0.1", "--workers", "1"))),
            *(
                "--port",
                str(port),
                "--backend-store-uri",
                backend,
                "--artifacts-destination",
                files,
            ),
        ]
        self.folder, self._log = folder, folder / "server.log"
        self._environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._process is not None:
            return
        with self._log.open("ab") as log:
            # A session of its own, because the server forks its workers and all have to go.
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=self._environment, start_new_session=True
            )
        until = time.monotonic() + 120
        while not self.answers():
            assert time.monotonic() < until, self._log.read_text()
            assert self._process.poll() is None, self._log.read_text()
            time.sleep(0.1)
        # `mlflow server` imports all of MLflow, makes the tables and starts the process that answers: the next time,
        # that one alone.
        for answering in psutil.Process(self._process.pid).children():
            self._command, self._environment = answering.cmdline(), answering.environ()

    def answers(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self.uri}/health", timeout=2) as answer:
            return answer.status == 200
        return False

    def send(self, number: signal.Signals) -> None:
        assert self._process
        os.killpg(self._process.pid, number)

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
