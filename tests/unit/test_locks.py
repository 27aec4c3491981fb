"""One holder at a time: among processes that race, die, fall silent, or run on hosts that cannot see each other."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import fsspec
import pytest

from xalign_ray.errors import LockError
from xalign_ray.work.artifacts import process_start, unfinished
from xalign_ray.work.locks import LOCK, Lock, check_writable, hold, hold_stored
from xalign_ray.work.storage import CACHE

PATIENCE_S = 60
LEASE_S, BEAT_S = 0.6, 0.1
# Holds the lock until its standard input ends. It looks for that end again and again: a signal that comes just before a
# blocking read would be seen after it only.
HOLDER = """
import functools, select, sys, pathlib
from xalign_ray.work import locks
place, *machine = sys.argv[1:]
if machine:
    locks.Holder = functools.partial(locks.Holder, machine=machine[0])
held = locks.hold_stored(place, "prepare", beat_s=0.1) if "://" in place else locks.hold(
    pathlib.Path(place), "prepare", beat_s=0.1
)
with held:
    print("held", flush=True)
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        pass
"""
# Takes the lock again and again; "inside" can be made once only. Each second time it leaves the lock of a dead process.
# Between seeing that a lock is dead and acting on it, it dawdles.
RACER = """
import sys, os, json, pathlib, random, time
from xalign_ray.work import locks
from xalign_ray.work.locks import hold, LOCK
is_over = locks._Watch.is_over
locks._Watch.is_over = lambda *given: is_over(*given) and (time.sleep(random.random() / 20) or True)
folder, rounds = pathlib.Path(sys.argv[1]), int(sys.argv[2])
for number in range(rounds):
    with hold(folder, "racer", waits=True, lease_s=120, beat_s=60) as lock:
        os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))
        (folder / "count").write_text(str(int((folder / "count").read_text()) + 1))
        (folder / "inside").unlink()
        if number % 2:
            dead = json.loads((folder / LOCK).read_text()) | {"pid": 2**22 + 1, "token": f"{os.getpid()} {number}"}
            (folder / "dead").write_text(json.dumps(dead))
            os.replace(folder / "dead", folder / LOCK)
"""


def start(script: str, folder: Path | str, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, str(folder), *more]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def start_holder(folder: Path | str, *machine: str) -> subprocess.Popen[str]:
    holder = start(HOLDER, folder, *machine)
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    return holder


def end(process: subprocess.Popen[str]) -> str:
    _, said = process.communicate(timeout=PATIENCE_S)
    return said


URL = "s3://store/runs/a"


@pytest.fixture(params=["a disk", "a store"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path | str:
    """A folder of a disk, and one of a store."""
    if request.param == "a disk":
        return tmp_path
    assert request.getfixturevalue("s3").requests
    monkeypatch.setenv(CACHE, str(tmp_path))
    return URL


def take(place: Path | str, lease_s: float = PATIENCE_S) -> AbstractContextManager[Lock]:
    if isinstance(place, Path):
        return hold(place, "pretrain", lease_s=lease_s)
    return hold_stored(place, "pretrain", lease_s=lease_s)


def content(place: Path | str) -> dict[str, Any]:
    """The lock that is there."""
    if isinstance(place, Path):
        return json.loads((place / LOCK).read_text())
    return json.loads(fsspec.filesystem("s3", use_listings_cache=False).cat("store/runs/a/.lock"))


def is_free(place: Path | str) -> bool:
    try:
        return not content(place)
    except FileNotFoundError:
        return True


def test_a_second_holder_is_refused_with_who_and_since_when_and_a_killed_one_is_followed_at_once(
    place: Path | str,
) -> None:
    holder = start_holder(place)
    since = content(place)["since"]
    with pytest.raises(LockError) as refused, take(place):
        pass
    assert str(refused.value) == (
        f"{place} is being written by prepare on {os.uname().nodename} (process {holder.pid}) since {since}. "
        "Wait for its end, or stop it."
    )
    holder.kill()  # and nobody has asked yet how it ended: a zombie
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            with take(place) as lock:
                assert content(place)["token"] == lock.token
                break
        except LockError:
            time.sleep(0.01)
    end(holder)
    assert is_free(place)


def test_a_lock_of_another_host_is_refused_while_it_beats_and_followed_when_it_was_silent_for_a_lease(
    place: Path | str, capsys: pytest.CaptureFixture[str]
) -> None:
    holder = start_holder(place, "elsewhere")
    with pytest.raises(LockError, match="is being written by prepare"), take(place, lease_s=5):
        pass
    holder.kill()
    end(holder)
    if isinstance(place, Path):
        os.utime(place / LOCK, (2e9, 2e9))  # its clock is years ahead
    began = time.monotonic()
    with take(place, LEASE_S) as lock:
        assert time.monotonic() - began > LEASE_S
        assert (lock.waited, content(place)["token"]) == (True, lock.token)
    assert "looking whether it still lives." in capsys.readouterr().err
    assert is_free(place)


def test_who_was_silent_for_a_lease_loses_its_lock_and_stops_with_a_sentence(place: Path | str) -> None:
    silent = start_holder(place, "elsewhere")
    silent.send_signal(signal.SIGSTOP)
    with take(place, LEASE_S) as lock:
        silent.send_signal(signal.SIGCONT)
        assert silent.wait(PATIENCE_S) == 1
        said = end(silent)
        assert content(place)["token"] == lock.token
    assert f"LockError: {place} is now written by pretrain on {os.uname().nodename} (process {os.getpid()})" in said
    assert "It stops here and writes no more." in said


@pytest.mark.parametrize("waits", [False, True])
def test_an_empty_lock_of_one_that_was_killed_while_it_made_it_expires(
    waits: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / LOCK).touch()
    with hold(tmp_path, "pretrain", waits, lease_s=LEASE_S):
        pass
    assert f"{tmp_path} is being written by another process; " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_and_leaves_no_lock(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
    try:
        with pytest.raises(LockError, match=r"cannot be written \(File too large\). Name another output."):
            hold(tmp_path, "pretrain").__enter__()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert list(tmp_path.iterdir()) == []


def test_one_that_waits_says_once_for_whom(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    holder = start_holder(tmp_path)
    threading.Timer(1.0, holder.communicate).start()
    with hold(tmp_path, "prepare", waits=True) as lock:
        assert lock.waited
    said = capsys.readouterr().err
    assert said.startswith(f"{tmp_path} is being written by prepare on {os.uname().nodename} (process {holder.pid}) ")
    assert said.endswith("; it is waited for.\n")
    assert said.count("\n") == 1


def test_a_lock_that_somebody_removed_in_the_last_moment_spoils_nothing(tmp_path: Path) -> None:
    with hold(tmp_path, "prepare"):
        (tmp_path / LOCK).unlink()
    assert list(tmp_path.iterdir()) == []


def test_of_many_that_race_exactly_one_is_inside_though_holders_die(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    racers = [start(RACER, tmp_path, "10") for _ in range(5)]
    said = [end(racer) for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 5, said
    assert (tmp_path / "count").read_text() == "50"


def test_leftovers_of_dead_writers_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    other = start_holder(tmp_path / "other")
    mine = unfinished(tmp_path / "a.parquet").name
    writer = f".{os.getpid()}.{process_start(os.getpid())}@"
    living = mine.replace(writer, f".{other.pid}.{process_start(other.pid)}@")
    dead, again = mine.replace(writer, f".{2**22 + 1}.5@"), mine.replace(writer, f".{other.pid}.5@")
    far = [name.rpartition("@")[0] + f"@elsewhere.0000000{n}.unfinished" for n, name in enumerate([mine, mine])]
    for name in (mine, living, dead, again, *far):
        (tmp_path / name).write_text("half")
    (tmp_path / dead.replace("a.parquet", "step_000010")).mkdir()
    os.utime(tmp_path / far[1], (1e9, 1e9))
    with hold(tmp_path, "prepare"):
        pass
    assert sorted(path.name for path in tmp_path.glob(".*")) == sorted([mine, living, far[0]])
    end(other)


def test_a_folder_that_cannot_be_written_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LockError, match=r"file cannot be written: it is not a folder. Name another output"):
        hold(tmp_path / "file", "pretrain").__enter__()
    with pytest.raises(LockError, match=r"cannot be written \(File name too long\). Name another output."):
        hold(tmp_path / ("x" * 300), "pretrain").__enter__()


@pytest.mark.parametrize("take", [check_writable, lambda folder: hold(folder, "pretrain").__enter__()])
def test_a_url_is_refused_and_does_not_become_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, take: Callable[[Path], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LockError, match=r"^s3://bucket/runs is a URL, and this verb writes to a folder on a disk: "):
        take(Path("s3://bucket/runs"))
    assert not list(tmp_path.iterdir())
