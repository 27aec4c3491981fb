"""The whole driver is interrupted, then dies, and the same command, given again, ends as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.parity.train.pool import Pool
from tests.ray.runs import TRAIN_WORKER, calm, check_rows, curve, is_alive, pids, reached, starts
from tests.ray.small import batches, recipe

pytestmark = pytest.mark.ray
STEPS, SAVED_EVERY, INTERRUPTED_AT, KILLED_AT = 150, 10, 12, 25
PATIENCE_S = 240


def command(settings: list[str], out: Path) -> list[str]:
    chosen = [word for setting in settings for word in ("--set", setting)]
    return [sys.executable, "-m", "xalign_ray", "pretrain", "tiny/align-mlm", *chosen, "--out", str(out)]


def wait_for(run: subprocess.Popen[bytes], out: Path, step: int, attempt: int) -> None:
    until = time.monotonic() + PATIENCE_S
    done = reached(out, step, attempt)
    while not done():
        assert run.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)


def kill_once(run: subprocess.Popen[bytes], out: Path) -> None:
    """Kills the driver in mid run, and sees that its workers follow: nobody may go on writing into the run."""
    wait_for(run, out, KILLED_AT, attempt=2)
    until = time.monotonic() + PATIENCE_S
    below = psutil.Process(run.pid).children(recursive=True)
    workers = [psutil.Process(pid) for pid in pids(TRAIN_WORKER, below=run.pid)]
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    while (left := [worker.pid for worker in workers if is_alive(worker)]) and time.monotonic() < until:
        time.sleep(0.1)
    for process in below:  # Ray's agents of the node take minutes to notice
        with suppress(psutil.NoSuchProcess):
            process.kill()
    assert (len(workers), left) == (2, [])


def test_an_interrupted_and_a_killed_driver_are_started_again_by_the_same_command(
    world: list[str], two: Pool, tmp_path: Path
) -> None:
    settings = [*world, *batches(24, 12, STEPS, SAVED_EVERY)]
    settings += ["parallel.data_resource=reader"]  # which a cluster of the command's own has
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"} | {"OMP_NUM_THREADS": "1"}
    given = command(settings, tmp_path / "killed")
    with (tmp_path / "said").open("wb") as said:
        first = subprocess.Popen(given, env=environment, stdout=said, stderr=said, start_new_session=True)
        wait_for(first, tmp_path / "killed", INTERRUPTED_AT, attempt=1)
        first.send_signal(signal.SIGINT)
        assert first.wait(PATIENCE_S) == 1
        assert "Interrupted. Give the same command again to go on" in (tmp_path / "said").read_text()
        second = subprocess.Popen(given, env=environment, stdout=said, stderr=said, start_new_session=True)
        kill_once(second, tmp_path / "killed")
        again = subprocess.run(given, env=environment, stdout=said, stderr=said, timeout=PATIENCE_S)
    assert again.returncode == 0, (tmp_path / "said").read_text()
    expected = calm(two, recipe(settings), tmp_path / "calm")
    begun, once, twice = starts(tmp_path / "killed")
    assert begun == 0
    assert 10 <= once <= twice < STEPS  # workers live a moment longer than their driver
    assert curve(tmp_path / "killed", STEPS) == expected
    check_rows(tmp_path / "killed", expected)
    assert (tmp_path / "killed" / "export" / "model.safetensors").is_file()
