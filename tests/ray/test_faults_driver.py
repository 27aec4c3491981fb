"""The whole driver is asked to stop, is started again, dies, and the run ends as if nothing had happened."""

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
from tests.ray.runs import (
    PATIENCE_S,
    TRAIN_WORKER,
    calm,
    check_rows,
    curve,
    events,
    is_alive,
    pids,
    reached,
    starts,
    without_ray,
)
from tests.ray.small import batches, recipe
from xalign_ray.tokens.prepare import prepare

pytestmark = [pytest.mark.ray, pytest.mark.long]
STEPS, SAVED_EVERY, STOPPED_AT, KILLED_AT = 90, 10, 6, 20


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


def stop_once(run: subprocess.Popen[bytes], out: Path, said: Path) -> int:
    """Tells the driver to stop in mid run; nothing of it is left, and one sentence names the step, returned here."""
    wait_for(run, out, STOPPED_AT, attempt=1)
    below = psutil.Process(run.pid).children(recursive=True)
    run.send_signal(signal.SIGTERM)
    assert run.wait(PATIENCE_S) == 143, said.read_text()
    assert [process for process in psutil.wait_procs(below, timeout=10)[1] if is_alive(process)] == []
    step = max(event["step"] for event in events(out) if event["event"] == "checkpoint")
    lines = [line for line in said.read_text().splitlines() if line.startswith("xalign: ") or "Traceback" in line]
    assert lines == [f"xalign: Stopped (SIGTERM): step {step} of {STEPS} is saved. Rerun the same command to resume."]
    return step


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


def test_a_run_whose_driver_was_stopped_and_then_killed_goes_on_each_time(
    world: list[str], two: Pool, tmp_path: Path
) -> None:
    usual = [*world, *batches(24, 12, STEPS, SAVED_EVERY)]
    settings = [*usual, "parallel.data_resource=reader"]  # which a cluster of the command's own has
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"} | {"OMP_NUM_THREADS": "1"}
    given = command(settings, tmp_path / "killed")
    with (tmp_path / "said").open("wb") as said:
        first = subprocess.Popen(given, env=environment, stdout=said, stderr=said, start_new_session=True)
        saved = stop_once(first, tmp_path / "killed", tmp_path / "said")
        second = subprocess.Popen(given, env=environment, stdout=said, stderr=said, start_new_session=True)
        kill_once(second, tmp_path / "killed")
    two.call(without_ray, recipe(usual), tmp_path / "killed", prepare(recipe(usual)).folder)
    expected = calm(two, recipe(usual), tmp_path / "calm")
    begun, once, twice = starts(tmp_path / "killed")  # what the loop raises is not tried again by Ray
    assert (begun, once) == (0, saved)
    assert STOPPED_AT <= once <= twice < STEPS  # workers live a moment longer than their driver
    assert curve(tmp_path / "killed", STEPS) == expected
    check_rows(tmp_path / "killed", expected)


BROKEN = """
from typing import Literal

from xalign_ray.config.choices import StreamChoice, Weight
from xalign_ray.streams.masked import masked_text


class Broken(StreamChoice):
    kind: Literal["broken"] = "broken"
    weight: Weight = 1.0


def broken(stream, batch):
    columns = masked_text(stream, batch)
    return columns + 1 if columns["position"].any() else columns
"""


def test_a_programming_error_in_a_worker_is_not_tried_again_and_names_the_users_line(
    world: list[str], tmp_path: Path
) -> None:
    (tmp_path / "broken_rows.py").write_text(BROKEN)
    (tmp_path / "own.yaml").write_text("extends: tiny/mlm\nplugins: [broken_rows]\nstreams: [{kind: broken}]\n")
    settings = [*world, *batches(24, 12, 20, 10), "parallel.data_cpus=null", "parallel.workers=2"]
    given = ["own.yaml" if word == "tiny/align-mlm" else word for word in command(settings, tmp_path / "run")]
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"} | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(given, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    last = ended.stderr.splitlines()[-1]
    assert (ended.returncode, len(starts(tmp_path / "run"))) == (1, 1), ended.stderr
    assert last.startswith("xalign: A worker met an error in its code, which no retry mends. TypeError: ")
    assert last.endswith(
        f'({tmp_path}/broken_rows.py:15, in broken: return columns + 1 if columns["position"].any() else columns)'
    )
