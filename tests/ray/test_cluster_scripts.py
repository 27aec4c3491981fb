"""What runs of cluster/: the hook of a worker's pod, and the Slurm script with stand-ins for srun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.pages import ROOT
from tests.ray.head import BIN, free_ports
from tests.ray.runs import PATIENCE_S

pytestmark = pytest.mark.ray
HOOK = ROOT / "cluster" / "prestop.py"
SAVES = "trap 'sleep 1; touch {folder}/saved; exit 143' TERM; touch {folder}/begun; while :; do sleep 0.1; done"


def wait_for(happened: Callable[[], bool], said: Callable[[], str]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < until, said()
        time.sleep(0.1)


def test_a_worker_pod_waits_while_ray_works_there() -> None:
    at_work = subprocess.Popen(["bash", "-c", "exec -a ray::MapBatches sleep 60"])  # as Ray names its processes
    hook = subprocess.Popen([sys.executable, "-c", _only(HOOK, at_work.pid), "worker"])
    try:
        time.sleep(7)  # longer than it waits for rest
        assert hook.poll() is None
        at_work.kill()
        at_work.wait()
        assert hook.wait(30) == 0
    finally:
        at_work.kill()
        hook.kill()


def _only(script: Path, pid: int) -> str:
    """The hook as a pod runs it, which sees its own processes alone."""
    return script.read_text().replace("[0-9]*/cmdline", f"{pid}/cmdline")


def stand_in(folder: Path, name: str, lines: str) -> None:
    file = folder / name
    file.write_text(f"#!/usr/bin/env bash\n{lines}\n")
    file.chmod(0o755)


def test_slurms_signal_lets_the_driver_save_before_ray_ends(tmp_path: Path) -> None:
    stand_in(tmp_path, "scontrol", "echo 127.0.0.1")
    stand_in(tmp_path, "srun", '[ "$2" = --cpus-per-task=1 ] && export SLURM_NODEID=0 && exec "${@:3}"')
    up = 'until (: < "/dev/tcp/$HEAD/$PORT"); do exit 1; done; touch {folder}/with_ray; exit 143'
    stand_in(tmp_path, "xalign", SAVES.replace("exit 143", up).format(folder=tmp_path))
    (port,) = free_ports(1)
    slurm = {"SLURM_JOB_NODELIST": "one", "SLURM_JOB_NUM_NODES": "1", "SLURM_CPUS_PER_TASK": "1"}
    with (
        tempfile.TemporaryDirectory(prefix="xa-", ignore_cleanup_errors=True) as short,
        (tmp_path / "said").open("wb") as said,
    ):
        environment = os.environ | slurm | {"PORT": str(port), "RAY_TMPDIR": short}
        environment["PATH"] = f"{tmp_path}:{BIN}:{os.environ['PATH']}"
        script = subprocess.Popen(["bash", ROOT / "cluster/slurm.sbatch"], env=environment, stdout=said, stderr=said)
        started: list[psutil.Process] = []
        try:
            wait_for((tmp_path / "begun").exists, (tmp_path / "said").read_text)
            started = psutil.Process(script.pid).children(recursive=True)
            names = {}
            for one in started:
                with suppress(psutil.NoSuchProcess):  # what Ray asks at its start ends at once
                    names[one.pid] = one.name()
            script.send_signal(signal.SIGTERM)
            assert script.wait(60) == 143
            assert (tmp_path / "saved").exists()
            assert (tmp_path / "with_ray").exists()
            raylets = [one for one in started if "raylet" in names.get(one.pid, "")]
            assert raylets
            assert psutil.wait_procs(raylets, timeout=30)[1] == []
        finally:
            for one in [*started, psutil.Process(script.pid)] if script.poll() is None else started:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
