"""Runs that tests start, watch and kill: on Ray and without it, and what their logs say of each step."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from xalign_ray.config.derive import run_fingerprint
from xalign_ray.config.schema import RunConfig
from xalign_ray.data.local import open_local
from xalign_ray.data.prepare import prepare
from xalign_ray.data.prepared import Prepared
from xalign_ray.track.events import read_events
from xalign_ray.train.driver import run_on_ray
from xalign_ray.train.loop import train


def facts(config: RunConfig, prepared: Prepared) -> dict[str, Any]:
    return {"recipe": "test", "fingerprint": run_fingerprint(config, prepared.fingerprint)}


def on_ray(config: RunConfig, folder: Path) -> list[tuple[int, float]]:
    prepared = prepare(config)
    run_on_ray(config, folder, prepared.folder, facts(config, prepared))
    return curve(folder, config.train.steps)


def without_ray(workers, config: RunConfig, folder: Path, prepared_folder: Path) -> None:
    prepared = Prepared.open(prepared_folder)
    given = facts(config, prepared)
    train(config, folder, prepared, lambda at, rank, _: open_local(prepared, config, at, rank), workers, given)


def curve(folder: Path, total: int) -> list[tuple[int, float]]:
    """(batch_hash, loss) of each of `total` steps along the surviving lineage."""
    steps = [event for event in read_events(folder / "events.jsonl") if event["event"] == "step"]
    assert [event["step"] for event in steps] == list(range(1, total + 1))
    return [(event["batch_hash"], event["metrics"]["train/loss"]) for event in steps]


def worker_pids() -> list[int]:
    """Train workers below this process, in order of age."""
    shown = subprocess.run(
        ["ps", "-eo", "pid,ppid,args", "--sort=start_time"], capture_output=True, text=True, check=True
    )
    rows = [line.split(maxsplit=2) for line in shown.stdout.splitlines()[1:]]
    parents = {int(pid): int(parent) for pid, parent, *_ in rows}

    def ours(pid: int) -> bool:
        while pid > 1:
            pid = parents.get(pid, 0)
            if pid == os.getpid():
                return True
        return False

    return [int(pid) for pid, _, command in rows if "RayTrainWorker" in command and ours(int(pid))]


def kill_after(log: Path, deaths: list[tuple[int, int]]) -> threading.Thread:
    """A thread that kills one of the two workers as soon as the log shows a step, for each (step, which worker)."""

    def watch() -> None:
        for attempt, (step, which) in enumerate(deaths, start=1):
            while not any(
                event["event"] == "step" and event["attempt"] == attempt and event["step"] >= step
                for event in (read_events(log, surviving=False) if log.is_file() else [])
            ):
                time.sleep(0.02)
            os.kill(worker_pids()[which], signal.SIGKILL)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread
