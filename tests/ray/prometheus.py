"""A real Prometheus beside a test, with the files that dashboards/ ships, pointed at the cluster of the test."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dashboards.generate import EVERY, HERE, TARGETS
from tests.ray.head import free_ports
from tests.ray.runs import PATIENCE_S


def program(name: str) -> str:
    """Where a program of Prometheus is."""
    if found := shutil.which(name):
        return found
    pytest.fail(
        f"{name} is not on the PATH; this test shows that Prometheus reads what dashboards/ holds. Give the command "
        "`apt-get install prometheus`, or unpack a release of https://prometheus.io/download/ in a folder of the PATH."
    )


def asked(panel: dict[str, Any]) -> list[str]:
    """The queries of a panel of the JSON, with the dashboard's variable at `All`."""
    return [target["expr"].replace("$run", ".*") for target in panel["targets"]]


def shipped_panels() -> dict[str, dict[str, Any]]:
    """Those of the JSON, by title."""
    tree = json.loads((HERE / "grafana" / "dashboards" / "xalign.json").read_text())
    return {panel["title"]: panel for panel in tree["panels"] if panel["type"] != "row"}


class Prometheus:
    """The server, on a port and with a folder of its own; scrapes every two seconds."""

    def __init__(self, folder: Path, targets: list[str]) -> None:
        shipped = (HERE / "prometheus" / "prometheus.yml").read_text()
        found = folder / "targets.json"
        found.write_text(json.dumps([{"labels": {"job": "ray"}, "targets": targets}]))
        assert TARGETS in shipped
        (folder / "prometheus.yml").write_text(shipped.replace(TARGETS, str(found)).replace(EVERY, "2s"))
        shutil.copy(HERE / "prometheus" / "alerts.yml", folder)
        self._url = f"http://127.0.0.1:{free_ports(1)[0]}"
        self._log, self._started = folder / "prometheus.log", time.time()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'series'}",
                    f"--web.listen-address={self._url.removeprefix('http://')}",
                ],
                stdout=log,
                stderr=log,
            )

    def wait_until_up(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while True:
            with suppress(OSError), urllib.request.urlopen(f"{self._url}/-/ready", timeout=2):
                return
            assert time.monotonic() < until, self._log.read_text()
            assert self._process.poll() is None, self._log.read_text()
            time.sleep(0.2)

    def ask(self, path: str, **words: str) -> Any:
        """What its API answers."""
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(words)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The series of a query since the server was started, as a panel asks it: each has `metric` and `values`."""
        times = {"start": str(self._started), "end": str(time.time()), "step": "1"}
        return self.ask("query_range", query=expr, **times)["result"]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
