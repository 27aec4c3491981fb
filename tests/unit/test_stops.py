"""A stop signal ends what a process does: at once, or when the step has ended; a second one ends that too."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

PATIENCE_S = 60
# Works through a step that lasts until its standard input ends, as the training loop does.
STEP = """
import sys
from xalign_ray import stops
with stops.listened():
    try:
        with stops.heeded():
            print("in a step", flush=True)
            sys.stdin.read()
            print("saved, told by", stops.asked() or "nobody", flush=True)
    except KeyboardInterrupt:
        print("interrupted by", stops.asked(), flush=True)
        sys.exit(stops.exit_code(stops.asked()))
"""
VERB = """
import os, signal, sys, time
from xalign_ray import cli, pipeline
def prepare(recipe, **_):
    print("at work", flush=True)
    time.sleep(60)
pipeline.prepare = prepare
sys.argv = ["xalign", "prepare", "tiny/mlm"]
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
    time.sleep(1.2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 143
    assert process.communicate() == ("interrupted by SIGTERM\n", "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 1), (signal.SIGHUP, 1)])
def test_a_verb_without_steps_ends_at_once_with_a_sentence(number: signal.Signals, code: int) -> None:
    process = start(VERB)
    process.send_signal(number)
    said, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (code, "")
    assert errors == f"xalign: Interrupted ({number.name}). Give the same command again to go on.\n"


def test_who_was_started_with_nohup_outlives_its_terminal() -> None:
    process = start(STEP, "nohup")
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (0, "saved, told by nobody\n")
