"""A stop signal ends what a process does: at once, or when the step has ended; a second one ends that too."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from xalign_ray.errors import ConfigError
from xalign_ray.work.process import SAME_STOP_S
from xalign_ray.work.process import launched as launched_as

PATIENCE_S = 60
# Works through a step that lasts until its standard input ends, as the training loop does.
STEP = """
import sys
from xalign_ray.work import process
with process.listened():
    try:
        with process.heeded():
            print("in a step", flush=True)
            sys.stdin.read()
            print("saved, told by", process.asked() or "nobody", flush=True)
    except KeyboardInterrupt:
        print("interrupted by", process.asked(), flush=True)
        sys.exit(process.exit_code(process.asked()))
"""
VERB = """
import atexit, sys, time
from xalign_ray import cli, pretraining
def shut_down():
    print("shutting down", flush=True)
    time.sleep(SHUT_DOWN_S)
atexit.register(shut_down)
def prepare(recipe, **_):
    print("at work", flush=True)
    time.sleep(60)
pretraining.prepare = prepare
sys.argv = ["xalign", "prepare", "tiny/mlm"]
cli.main()
"""
# Starts something that must not be broken off, as a cluster; its processes are not to get the hang-up of a terminal.
KEPT = """
import signal, subprocess, sys
from xalign_ray.work import process
with process.listened():
    try:
        with process.kept():
            print("in a step", flush=True)
            sys.stdin.read()
            blocked = "import signal; print(*(one.name for one in signal.pthread_sigmask(signal.SIG_BLOCK, ())))"
            subprocess.run([sys.executable, "-c", blocked], check=True)
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))
        print("not told", flush=True)
        sys.stdin.read()
        signal.raise_signal(signal.SIGTERM)
    except KeyboardInterrupt:
        print("interrupted by", process.asked(), flush=True)
        sys.exit(process.exit_code(process.asked()))
"""
# One of two processes, of which the other does not come.
RANK = """
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.train.distributed import setup_workers
from xalign_ray.cli import exit_codes
with exit_codes():
    setup_workers(ParallelConfig(workers=2))
"""
# A study of three cells, one at a time: the second is told to stop.
STUDY = """
import sys, time
from pathlib import Path
from xalign_ray import cli, pretraining
from xalign_ray.work import process
from xalign_ray.errors import StoppedError
from xalign_ray.studies import queue
from xalign_ray.train import cluster
begun = []
def pretrain(recipe, title):
    begun.append(title)
    assert len(begun) < 3
    if len(begun) == 2:
        print("at work", flush=True)
        while not process.asked():
            time.sleep(0.01)
        raise StoppedError("Stopped (SIGTERM): step 3 of 6 is saved.", 143)
    return Path(recipe.config.output)
pretraining.pretrain, pretraining.prepare, pretraining.find_run = pretrain, lambda recipe: None, lambda recipe: None
cluster.connect = lambda *_: None
queue.ray.cluster_resources = queue.ray.available_resources = lambda: {"CPU": 2.0}
queue.lasting_nodes = lambda: [{"Resources": {"CPU": 2.0}}]
sys.argv = ["xalign", "study", FILE, "--out", OUT]
cli.main()
"""


def start(script: str, *before: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    process = subprocess.Popen([*before, sys.executable, "-c", script], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout
    assert process.stdout.readline() in ("in a step\n", "at work\n")
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 1), (signal.SIGHUP, 1)])
def test_the_step_ends_first(number: signal.Signals, code: int) -> None:
    process = start(STEP)
    process.send_signal(number)
    process.send_signal(number)  # the same stop, which came over two ways
    time.sleep(0.2)
    said, errors = process.communicate(timeout=PATIENCE_S)
    assert said == f"saved, told by {number.name}\ninterrupted by {number.name}\n"
    assert (process.returncode, errors) == (code, "")


def test_a_second_signal_ends_the_step_at_once() -> None:
    process = start(STEP)
    process.send_signal(signal.SIGTERM)
    time.sleep(SAME_STOP_S + 0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 143
    assert process.communicate() == ("interrupted by SIGTERM\n", "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 1), (signal.SIGHUP, 1)])
def test_a_verb_without_steps_ends_at_once_with_a_sentence(number: signal.Signals, code: int) -> None:
    process = start(VERB.replace("SHUT_DOWN_S", "0"))
    process.send_signal(number)
    said, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (code, "shutting down\n")
    assert errors == f"xalign: Interrupted ({number.name}). Rerun the same command to resume.\n"


def test_a_second_signal_ends_what_a_stopped_verb_still_does_without_a_word_more() -> None:
    process = start(VERB.replace("SHUT_DOWN_S", str(PATIENCE_S)))
    process.send_signal(signal.SIGTERM)
    assert process.stdout
    assert process.stdout.readline() == "shutting down\n"
    time.sleep(SAME_STOP_S + 0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGINT
    assert errors == "xalign: Interrupted (SIGTERM). Rerun the same command to resume.\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 1), (signal.SIGHUP, 1)])
def test_the_start_of_a_cluster_is_not_broken_off(number: signal.Signals, code: int) -> None:
    process = start(KEPT)
    process.send_signal(number)
    time.sleep(0.2)
    said, errors = process.communicate(timeout=PATIENCE_S)
    assert said == f"SIGHUP\ninterrupted by {number.name}\n"
    assert (process.returncode, errors) == (code, "")


def test_a_librarys_handler_gives_way_to_ours() -> None:
    process = start(KEPT)
    said, errors = process.communicate(timeout=PATIENCE_S)
    assert said == "SIGHUP\nnot told\ninterrupted by SIGTERM\n"
    assert (process.returncode, errors) == (143, "")


@pytest.mark.parametrize(
    ("rank", "waits_for"),
    [("0", "1 more of 2 processes (WORLD_SIZE)"), ("1", "rank 0 of 2 processes (WORLD_SIZE) at 127.0.0.1:{}")],
)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 1)])
def test_rank_that_waits_for_others_says_so_and_can_be_stopped(
    rank: str, waits_for: str, number: signal.Signals, code: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    launched = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys{RANK}"], env=os.environ | launched, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr
    assert process.stderr.readline() == (
        f"Rank {rank} waits for {waits_for.format(port)}, at most 1,800 s. To train in one process, unset RANK and "
        "WORLD_SIZE.\n"
    )
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE_S)
    ended = f"xalign: Interrupted ({number.name}). Rerun the same command to resume.\n"
    assert (process.returncode, errors) == (code, ended if rank == "0" else "")


@pytest.mark.parametrize(
    "launched",
    [{"RANK": "0", "WORLD_SIZE": "two"}, {"RANK": "2", "WORLD_SIZE": "2"}, {"RANK": "0"}, {"WORLD_SIZE": "2"}],
)
def test_launcher_variables_that_fit_no_process_are_refused(
    launched: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="in the environment is no rank of a number of processes"):
        launched_as()


def test_a_study_that_is_told_to_stop_waits_for_the_step_that_is_saved_and_starts_nothing_more(tmp_path: Path) -> None:
    study = tmp_path / "two.yaml"
    study.write_text("encoders: [{recipe: tiny/mlm, label: mlm}]\nseeds: [0, 1, 2]\nmlflow: off\n")
    out = tmp_path / "runs"
    process = start(STUDY.replace("FILE", repr(str(study))).replace("OUT", repr(str(out))))
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert errors.splitlines()[1:] == [  # behind what it begins with
        "[1/3] mlm (seed 0): finished",
        "xalign: mlm (seed 1): Stopped (SIGTERM): step 3 of 6 is saved.",
    ]
    assert process.returncode == 143
    assert not (out / "studies" / "two" / ".lock").exists()


def test_who_was_started_with_nohup_outlives_its_terminal() -> None:
    process = start(STEP, "nohup")
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (0, "saved, told by nobody\n")
