"""The lock on a folder of a store: between processes that live, are killed, sleep, or race for what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.s3_server import S3Server
from xalign_ray.errors import DataError, LockError
from xalign_ray.work.locks import Holder, _Object, hold_stored
from xalign_ray.work.mirror import local_folder
from xalign_ray.work.storage import CACHE

URL = "s3://store/runs/a"
LOCK_OBJECT = "store/runs/a/.lock"
LOST = f"LockError: {URL} is now written by pretrain on "
PROGRAM = f"""
import functools, sys, time
from xalign_ray.work import locks, mirror
from xalign_ray.work.mirror import local_folder, published
mirror.PUBLISH_S = 0.02
if sys.argv[1:]:
    locks.Holder = functools.partial(locks.Holder, machine=sys.argv[1])
with published(local_folder("{URL}"), "pretrain", beat_s=0.1):
    print("holds", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def start(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts a process that holds the lock, as one of this machine or of another."""
    assert s3.requests
    monkeypatch.setenv(CACHE, str(tmp_path))
    started: list[subprocess.Popen] = []

    def start(*machine: str) -> subprocess.Popen:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen([sys.executable, "-c", PROGRAM, *machine], **pipes))
        assert started[-1].stdout
        assert started[-1].stdout.readline() == "holds\n", started[-1].communicate()
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def holder() -> dict[str, str]:
    return json.loads(fsspec.filesystem("s3").cat(LOCK_OBJECT))


def test_a_writer_that_slept_and_lost_its_lock_writes_nothing_more(start: Callable[..., subprocess.Popen]) -> None:
    first = start("elsewhere")
    first.send_signal(signal.SIGSTOP)
    (local_folder(URL) / "events.jsonl").write_text("{}\n")
    with hold_stored(URL, "pretrain", lease_s=0.5, beat_s=0.1):
        first.send_signal(signal.SIGCONT)
        _, said = first.communicate(timeout=20)
        assert first.returncode == 1
        assert LOST in said
        assert holder()["pid"] == os.getpid()
    assert not fsspec.filesystem("s3").exists("store/runs/a/events.jsonl")


@pytest.mark.parametrize("more", [{"beats": 7}, {}], ids=["of a store", "of a disk, copied with its folder"])
def test_of_two_that_wait_for_a_dead_writer_one_writes(more: dict[str, int], s3: S3Server) -> None:
    assert s3.requests
    dead = asdict(Holder("pretrain", machine="elsewhere")) | more
    fsspec.filesystem("s3").pipe(LOCK_OBJECT, json.dumps(dead).encode())
    together, ended, outcomes = threading.Barrier(2), threading.Event(), []

    def write() -> None:
        together.wait()
        try:
            with hold_stored(URL, "pretrain", lease_s=0.3, beat_s=0.1):
                outcomes.append("writes")
                assert ended.wait(20)
        except LockError as error:
            outcomes.append(str(error))
            ended.set()

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 2  # in either order: the one may be refused before the other's thread goes on
    refused, writes = sorted(outcomes)
    assert writes == "writes"
    assert f"{URL} is being written by pretrain on " in refused


def test_a_lock_that_was_written_though_its_answer_was_lost_is_ours(s3: S3Server) -> None:
    """As when a connection breaks after the write: the store's package tries again, and is refused."""
    with hold_stored(URL, "pretrain", beat_s=60) as lock:
        assert isinstance(lock.place, _Object)
        lock.place.beats, content = 2, holder() | {"beats": 2}
        fsspec.filesystem("s3").pipe(LOCK_OBJECT, json.dumps(content).encode())
        lock._renew()
        assert not lock.lost
        assert holder()["beats"] == 3
    assert s3.requests


def test_a_renewal_that_another_forestalls_loses_the_lock_at_once(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xalign_ray.work.process.interrupt_now", lambda: None)
    with hold_stored(URL, "pretrain", beat_s=60) as lock:
        assert isinstance(lock.place, _Object)
        put = lock.place._system.call_s3

        def call_s3(method: str, **given: Any) -> Any:
            fsspec.filesystem("s3").pipe(LOCK_OBJECT, json.dumps(holder() | {"token": "another"}).encode())
            return put(method, **given)

        monkeypatch.setattr(lock.place._system, "call_s3", call_s3)
        monkeypatch.setattr(lock, "_renewed", -3600.0)
        with pytest.raises(LockError, match="is now written by pretrain on "):
            lock.check()
    assert holder()["token"] == "another"
    assert s3.requests


def test_a_store_that_refuses_for_another_reason_is_not_asked_again(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match="there is no such bucket"), hold_stored("s3://missing/runs/a", "pretrain"):
        pass
    asked = []

    def refuse(*_: object, **__: object) -> None:
        asked.append("put")
        if len(asked) > 3:
            raise RuntimeError("asked again")
        raise PermissionError("User: arn:aws:iam::412409412409:user/a is not authorized")

    monkeypatch.setattr(fsspec.filesystem("s3", use_listings_cache=False), "call_s3", refuse)
    with pytest.raises(DataError, match="cannot be locked"), hold_stored(URL, "pretrain"):
        pass
    assert asked == ["put"]
    assert s3.requests


def test_who_has_slept_with_its_machine_looks_before_it_writes(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with hold_stored(URL, "pretrain", beat_s=60) as lock:
        lock.check()
        fsspec.filesystem("s3").pipe(LOCK_OBJECT, json.dumps(holder() | {"token": "another"}).encode())
        lock.check()
        now = time.clock_gettime
        monkeypatch.setattr(time, "clock_gettime", lambda clock: now(clock) + 3600 * (clock == time.CLOCK_BOOTTIME))
        monkeypatch.setattr("xalign_ray.work.process.interrupt_now", lambda: None)
        with pytest.raises(LockError, match=r"is now written by pretrain on .*: this process was silent for too long"):
            lock.check()
    assert s3.requests


def test_a_store_without_conditional_writes_has_one_writer_too() -> None:
    url, system = "memory://store/run", fsspec.filesystem("memory")
    system.store.clear()
    with (
        hold_stored(url, "pretrain"),
        pytest.raises(LockError, match=r"^memory://store/run is being written by pretrain on .* or stop it\.$"),
        hold_stored(url, "pretrain"),
    ):
        pass
    assert system.find("/store/run") == []
    system.pipe("/store/run/.lock", json.dumps(asdict(Holder("pretrain", machine="elsewhere")) | {"beats": 1}).encode())
    words = r" If it is dead, remove \.lock there: this store has no conditional writes to find it out\.$"
    with pytest.raises(LockError, match=words), hold_stored(url, "pretrain"):
        pass
    dead = subprocess.Popen(["true"])
    started = "1"
    dead.wait()
    content = asdict(Holder("pretrain", pid=dead.pid, started=started)) | {"beats": 1}
    system.pipe("/store/run/.lock", json.dumps(content).encode())
    with hold_stored(url, "pretrain"):  # it was a process of this machine, which knows that it is dead
        assert json.loads(system.cat("/store/run/.lock"))["pid"] == os.getpid()


def test_who_takes_a_lock_over_in_a_store_that_ignores_conditions_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    system = fsspec.filesystem("memory")
    system.store.clear()
    dead = subprocess.Popen(["true"])
    dead.wait()
    content = asdict(Holder("pretrain", pid=dead.pid, started="1"))
    system.pipe("/store/run/.lock", json.dumps(content).encode())
    faster = json.dumps(asdict(Holder("pretrain", machine="elsewhere"))).encode()
    monkeypatch.setattr(time, "sleep", lambda _: system.pipe("/store/run/.lock", faster))
    with pytest.raises(LockError, match="is being written by pretrain on "), hold_stored("memory://store/run", "a"):
        pass
