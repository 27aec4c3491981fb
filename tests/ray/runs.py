"""Runs that tests start, watch and disturb: on Ray and without it, and what their logs say of each step."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import ray

from tests.parity.train.pool import Pool
from tests.ray.sockets import Listening, closed_by, listening
from xalign_ray.config.identity import run_fingerprint
from xalign_ray.config.schema import RunConfig
from xalign_ray.feed.batches import open_local
from xalign_ray.shards.prepared import Prepared
from xalign_ray.tokens.prepare import prepare
from xalign_ray.track.events import EVENT_LOG, Event, EventReader, read_events
from xalign_ray.train.loop import train
from xalign_ray.train.on_ray import run_on_ray
from xalign_ray.work.job import Job

Curve = list[tuple[int, float]]
TRAIN_WORKER, BLOCK_SERVER, DATA_TASK = "ray::RayTrainWorker", "ray::BlockServer", "ray::MapBatches"
PATIENCE_S = 240  # after which what a test waits for will not come


def facts(config: RunConfig, prepared: Prepared) -> dict[str, Any]:
    return {"recipe": "test", "fingerprint": run_fingerprint(config, prepared.fingerprint)}


def on_ray(config: RunConfig, folder: Path) -> Curve:
    prepared = prepare(config)
    run_on_ray(Job(folder, facts(config, prepared)), config, prepared.folder)
    return curve(folder, config.train.max_steps)


def without_ray(workers, config: RunConfig, folder: Path, prepared_folder: Path) -> None:
    prepared = Prepared.open(prepared_folder)
    given = facts(config, prepared)
    train(Job(folder, given), config, prepared, lambda at, rank, _: open_local(prepared, config, at, rank), workers)


def calm(pool: Pool, config: RunConfig, folder: Path) -> Curve:
    """The run that nothing disturbs; made once for all tests that name the same folder."""
    pool.call(without_ray, config, folder, prepare(config).folder)
    return curve(folder, config.train.max_steps)


def curve(folder: Path, total: int) -> Curve:
    """(batch_hash, loss) of each of `total` steps along the surviving lineage."""
    steps = [event for event in read_events(folder / EVENT_LOG) if event["event"] == "step"]
    assert [event["step"] for event in steps] == list(range(1, total + 1))
    return [(event["batch_hash"], event["metrics"]["train/loss"]) for event in steps]


ONCE = {"_AutoscalingCoordinatorActor", "_StatsActor"}  # kinds of actors that a cluster has once


def actors() -> set[str]:
    """The names of all actors that the cluster has had."""
    return set(ray._private.state.actors())


def started_since(before: set[str]) -> set[str]:
    """The kinds of actors: a training starts none that nothing asks, for each takes one or two seconds of a core."""
    return {actor["ActorClassName"] for name, actor in ray._private.state.actors().items() if name not in before}


def starts(folder: Path) -> list[int]:
    """The steps that the attempts at a run began after."""
    return [event["step"] for event in events(folder) if event["event"] == "start"]


def events(folder: Path) -> list[Event]:
    """Every event that was written, superseded or not."""
    return read_events(folder / EVENT_LOG, surviving=False) if (folder / EVENT_LOG).is_file() else []


def check_rows(folder: Path, expected: Curve) -> None:
    """Each step, whenever it was done or redone, had the rows of the calm run's, and no two steps had the same."""
    check_batches(folder, [given for given, _ in expected])


def check_batches(folder: Path, expected: list[int]) -> None:
    """As `check_rows`, by the steps' hashes alone."""
    seen: dict[int, set[int]] = {}
    for event in events(folder):
        if event["event"] == "step":
            seen.setdefault(event["step"], set()).add(event["batch_hash"])
    assert seen == {step: {given} for step, given in enumerate(expected, start=1)}
    assert len(set(expected)) == len(expected)


def pids(title: str, below: int | None = None) -> list[int]:
    """Living processes with this title below one (this one), in order of age."""
    found = []
    for process in psutil.Process(below or os.getpid()).children(recursive=True):
        try:
            if title in " ".join(process.cmdline()) and is_alive(process):
                found.append((process.create_time(), process.pid))
        except psutil.NoSuchProcess:
            continue
    return [pid for _, pid in sorted(found)]


def is_alive(process: psutil.Process) -> bool:
    """Whether it can still do anything; one whose parent has not asked how it ended can not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def reached(folder: Path, step: int, attempt: int = 1) -> Callable[[], bool]:
    """Whether an attempt has finished a step; each call reads what is new in the log, until one says yes."""
    log = EventReader(folder / EVENT_LOG)
    return lambda: any(e["event"] == "step" and e["attempt"] == attempt and e["step"] >= step for e in log.read())


def when(*turns: tuple[Callable[[], Any], Callable[[], None]]) -> threading.Thread:
    """A thread that waits for each condition in turn and then acts on it."""

    def watch() -> None:
        for condition, act in turns:
            until = time.monotonic() + PATIENCE_S
            while not condition():
                if time.monotonic() > until:
                    return
                time.sleep(0.1)  # some conditions look at all processes
            act()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def kill_worker(which: int) -> Callable[[], None]:
    """Kills a train worker as the system does when memory is gone."""
    return lambda: os.kill(pids(TRAIN_WORKER)[which], signal.SIGKILL)


@contextmanager
def sockets_watched() -> Iterator[dict[Listening, str]]:
    """Asks each socket that opens below this process meanwhile what keeps strangers out of it."""
    seen: dict[Listening, str] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(1):
            for one in listening(os.getpid()):
                if one not in seen and not _is_of_a_pool(one.pid):
                    seen[one] = closed_by(one)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield seen
    finally:
        over.set()
        watching.join()


def _is_of_a_pool(pid: int) -> bool:
    """Whether it is a worker of the tests' own, which other tests of this process have left running."""
    try:
        return "multiprocessing.forkserver" in " ".join(psutil.Process(pid).cmdline())
    except psutil.NoSuchProcess:
        return False


def addresses_of_this_machine() -> list[str]:
    """Of all its interfaces, loopback too."""
    families = {socket.AF_INET, socket.AF_INET6}
    found = [one.address for each in psutil.net_if_addrs().values() for one in each if one.family in families]
    return [address for address in found if "%" not in address]  # link-local: another spelling of the same machine
