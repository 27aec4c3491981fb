"""Signals to a driver under Ray when no step ends: the cluster starts, no worker listens, one is dead, a step hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.ray.runs import PATIENCE_S, TRAIN_WORKER, is_alive, pids, reached
from tests.ray.small import batches, recipe, write_world
from tests.unit.conftest import prepare_here
from xalign_ray.work.process import SAME_STOP_S

pytestmark = [pytest.mark.ray, pytest.mark.long]


class Driver:
    """`xalign pretrain` in a process of its own, and all processes that were ever seen below it."""

    def __init__(self, settings: list[str], out: Path) -> None:
        chosen = [word for setting in settings for word in ("--set", setting)]
        command = [sys.executable, "-m", "xalign_ray", "pretrain", "tiny/mlm", *chosen, "--out", str(out)]
        environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"} | {"OMP_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)
        self._below: set[psutil.Process] = set()

    def wait(self, happened: Callable[[], object]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not happened():
            assert self._process.poll() is None, self._process.communicate()
            assert time.monotonic() < until
            time.sleep(0.1)

    def pids(self, title: str) -> list[int]:
        return pids(title, below=self._process.pid)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> tuple[int, list[str]]:
        """Exit code and what it said, less the lines of progress; sees that nothing of it is left."""
        driver = psutil.Process(self._process.pid)
        while is_alive(driver):
            self._below.update(driver.children(recursive=True))
            time.sleep(0.2)  # looking at all processes takes a core if it is done without a pause
        said = self._process.communicate(timeout=PATIENCE_S)[1].splitlines()
        for process in self._below:  # on a busy machine Ray kills its raylet before that has killed what hangs
            with suppress(psutil.NoSuchProcess):
                process.resume()
        # An agent of Ray's that was still starting looks for its cluster for a minute before it gives up.
        left = psutil.wait_procs(list(self._below), timeout=PATIENCE_S)[1]
        assert [process for process in left if is_alive(process)] == []
        progress = ("Pretraining ", "Preparing ", "Starting ", "training ", "start: ", "step ")
        return self._process.returncode, [line for line in said if not line.startswith(progress)]


def interrupted(name: str) -> list[str]:
    return [f"xalign: Interrupted ({name}). Rerun the same command to resume."]


def test_a_driver_that_cannot_end_a_step_ends_at_once_with_a_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = write_world(tmp_path, sentences=100, parallel=10)
    settings += [*batches(8, 4, 1_000, saved_every=1_000), "parallel.workers=1"]
    prepare_here(recipe(settings, name="tiny/mlm"))

    starting = Driver(settings, out)
    starting.wait(lambda: starting.pids("/raylet "))
    starting.send(signal.SIGTERM)
    assert starting.end() == (143, interrupted("SIGTERM"))

    unheard = Driver(settings, out)
    unheard.wait(lambda: unheard.pids("ray::SynchronizationActor"))
    unheard.send(signal.SIGHUP)
    assert unheard.end() == (1, interrupted("SIGHUP"))

    failed = Driver(settings, tmp_path / "failed")
    failed.wait(reached(tmp_path / "failed", 1))
    (worker,) = failed.pids(TRAIN_WORKER)
    psutil.Process(worker).kill()  # others could follow only when there is room for them
    failed.send(signal.SIGTERM)
    assert failed.end() == (143, interrupted("SIGTERM"))

    hanging = Driver(settings, out)
    hanging.wait(reached(out, 1))
    (worker,) = hanging.pids(TRAIN_WORKER)
    psutil.Process(worker).suspend()
    hanging.send(signal.SIGTERM)
    time.sleep(SAME_STOP_S + 0.2)
    hanging.wait(lambda: True)
    hanging.send(signal.SIGINT)
    assert hanging.end() == (143, interrupted("SIGTERM"))
    assert [path.name for path in out.iterdir() if path.name.startswith(".")] == []
