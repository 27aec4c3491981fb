"""What a start costs: CPU seconds of the whole process tree of `pretrain` where the shards are there, wall seconds too.

A process belongs to the tree when it has inherited a variable that is put into the environment of the command: those of
Ray leave the command's session. `python tests/bench/start.py` also shows the seconds of each process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from records import record

from xalign_ray.track.events import EVENT_LOG, read_events

RECIPE, STEPS = "tiny/mlm", 4
MARK = "XALIGN_BENCH_START"
LOOK_S = 0.2
XALIGN = (sys.executable, "-m", "xalign_ray")
KINDS: dict[str, list[str]] = {"ray": [], "no_ray": ["--no-ray", "--set", "parallel.workers=1"]}


def measure() -> list[dict[str, Any]]:
    """CPU seconds to the end of a run of a few steps, and wall seconds to the end of its first step."""
    records = []
    for kind, (seconds, first_step) in start().items():
        how = f"{RECIPE}, {STEPS} steps, shards there, no MLflow; load {os.getloadavg()[0]:.1f}"
        total = sum(seconds.values())
        records.append(record(f"start/cpu_s/{kind}", total, None, f"of all processes of a run; {how}", "lower"))
        must = 15 if kind == "ray" else None
        records.append(record(f"start/first_step_s/{kind}", first_step, must, f"to the first step; {how}", "lower"))
    return records


def start() -> dict[str, tuple[dict[str, float], float]]:
    """CPU seconds of each process by its last name, and wall seconds to the end of the first step, of each kind."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        settings = [f"output={folder}/out", f"train.max_steps={STEPS}", "train.eval_steps=0", 'track.mlflow="off"']
        common = [RECIPE, *(word for one in settings for word in ("--set", one))]
        cpu_seconds([*XALIGN, "prepare", *common])
        for kind, options in KINDS.items():
            out = Path(folder, kind)
            began = time.time()
            seconds = cpu_seconds([*XALIGN, "pretrain", *common, *options, "--out", str(out)])
            steps = [event for event in read_events(out / EVENT_LOG) if event["event"] == "step"]
            found[kind] = (seconds, steps[0]["time"] - began)
    return found


def cpu_seconds(command: Sequence[str]) -> dict[str, float]:
    """CPU seconds of a command by the names that its processes had at last, as far as looks have seen them."""
    mark = f"{time.time_ns()}"
    running = subprocess.Popen(command, env=os.environ | {MARK: mark}, stdout=subprocess.DEVNULL)
    spent: dict[psutil.Process, tuple[str, float]] = {}
    others: set[psutil.Process] = set()
    while running.poll() is None:
        for process in set(psutil.process_iter()) - others:
            try:
                if process not in spent and (environment := process.environ()).get(MARK) != mark:
                    others |= {process} if environment else set()  # it has none in the moment that it begins
                    continue
                times = process.cpu_times()
                name = " ".join(process.cmdline()).removeprefix(f"{sys.executable} ")
                spent[process] = (name, times.user + times.system)
            except psutil.Error:
                pass
        time.sleep(LOOK_S)
    assert running.returncode == 0
    seconds: dict[str, float] = defaultdict(float)
    for name, used in spent.values():
        seconds[name[:80]] += used
    return dict(seconds)


if __name__ == "__main__":
    for of, (by_process, first) in start().items():
        sys.stdout.write(f"{of}: {sum(by_process.values()):.1f} CPU s; first step after {first:.1f} s\n")
        for shown, cpu in sorted(by_process.items(), key=lambda one: -one[1]):
            sys.stdout.write(f"{cpu:8.2f}  {shown}\n")
