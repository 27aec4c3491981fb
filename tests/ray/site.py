"""A Ray cluster on hosts of its own, as the page on clusters starts it: a head, nodes that restart Ray, a desk."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.pages import command, commands
from tests.ray.head import PAGE, Job
from tests.ray.hosts import network
from tests.ray.runs import PATIENCE_S

STORE = ("--object-store-memory", "100000000", "--disable-usage-stats")
NODES = {  # by what each is given besides
    "data": ["--num-cpus", "2", "--resources", json.dumps({"reader": 1})],
    "train-1": ["--num-cpus", "2", "--labels", "role=trains"],
    "train-2": ["--num-cpus", "2", "--labels", "role=trains"],
}
PLACED = ["parallel.workers=2", "parallel.cpus_per_worker=1", "parallel.ray.placement_strategy=STRICT_SPREAD"]
PLACED += ["parallel.ray.label_selector={role: trains}", "parallel.data_resource=reader", "parallel.data_cpus=1"]
ANSWERS = (  # of the dashboard to one who knows the token; its agent, which runs jobs, is up later than its first page
    "import pathlib, sys, urllib.request as u; "
    "u.urlopen(u.Request('http://head:8265/api/jobs/', headers={'Authorization': 'Bearer ' + sys.argv[1]}), timeout=5)"
)


class Site:
    """The hosts `head`, which has no CPUs for work, `data`, `train-1` and `train-2`, and `desk`, which is no node."""

    def __init__(self, folder: Path) -> None:
        """Powers all hosts on; `folder` is what the page calls `/shared`."""
        self.shared = folder
        self._disks = Path(tempfile.mkdtemp(prefix="xa-"))
        self._own = network(self._disks, "head", *NODES, "desk")
        self.network = self._own.__enter__()
        self.hosts = self.network.hosts
        make = " && ".join(line for line in commands(PAGE) if line.startswith(("openssl", "chmod")))
        subprocess.run(make.replace("/shared", str(folder)), shell=True, check=True)
        token = dict(word.split("=", 1) for word in self.of_page("export RAY_AUTH_MODE")[1:])
        self.environment = self.network.environment | token
        self._jobs: list[Job] = []

    def of_page(self, begin: str) -> list[str]:
        """A command line of the page, with this site's folder and head."""
        return [word.replace("/shared", str(self.shared)).replace("HEAD", "head") for word in command(PAGE, begin)]

    def start(self, host: str, *words: str | Path) -> Job:
        """A command on a host, in the background; it ends with the site at the latest."""
        said = self._disks / f"{host}-{len(self._jobs)}.log"
        job = Job(list(self.hosts[host].command(*words)), self.environment, said)
        self._jobs.append(job)
        return job

    def start_head(self) -> Job:
        patience = self.of_page("export RAY_health_check_timeout_ms")[1:]
        start = self.of_page("ray start --head")
        head = self.start("head", "env", *patience, *start, "--num-cpus", "0", "--dashboard-host", "0.0.0.0", *STORE)
        token = (self.shared / "ray_token").read_text().strip()
        until = time.monotonic() + PATIENCE_S
        while self._fails("desk", "python", "-c", ANSWERS, token):
            assert time.monotonic() < until, head.said()
            time.sleep(0.5)
        return head

    def start_node(self, host: str) -> Job:
        """As a service of the system, which starts Ray again whenever it ends."""
        ray = " ".join(f"'{word}'" for word in [*self.of_page("ray start --block --address"), *NODES[host], *STORE])
        return self.start(host, "sh", "-c", f"while :; do {ray}; sleep 1; done")

    def submit(self, *words: str | Path) -> str:
        """What `xalign submit`, from the desk, says of a job that ends well."""
        return self.hosts["desk"].run(*self.submitted(*words), environment=self.environment)

    def submitted(self, *words: str | Path) -> list[str]:
        return ["xalign", "submit", "--address", "http://head:8265", *map(str, words)]

    def close(self) -> None:
        self._own.__exit__(None, None, None)
        for job in self._jobs:
            job.kill()
        shutil.rmtree(self._disks, ignore_errors=True)

    def _fails(self, host: str, *words: str) -> bool:
        done = subprocess.run(self.hosts[host].command(*words), env=self.environment, capture_output=True, check=False)
        return done.returncode != 0


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """A running cluster of four hosts; nothing of it is left afterwards."""
    found = Site(folder)
    try:
        found.start_head()
        nodes = [found.start_node(name) for name in NODES]
        for node in nodes:
            node.wait_for(lambda node=node: "Ray runtime started" in node.said())
        yield found
    finally:
        found.close()
