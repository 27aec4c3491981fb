"""Requests to stop from the driver to rank 0: whether a rank that takes steps has heard them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray

from xalign_ray.train import worker
from xalign_ray.train.worker import ask_to_stop, hear_stop

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


class Rank:
    """A worker that calls functions beside what it trains, as Ray Train's does."""

    def pid(self) -> int:
        return os.getpid()

    def call(self, function: Callable[..., Any], *given: Any) -> Any:
        return function(*given)

    def train(self) -> None:
        self.heard = hear_stop()

    def said(self) -> str:
        return self.heard()


@pytest.fixture
def rank() -> Iterator[Any]:
    actor: Any = ray.remote(Rank).options(num_cpus=0).remote()
    yield actor
    ray.kill(actor)


def test_a_rank_that_takes_steps_hears_the_first_signal_and_says_so(rank: Any) -> None:
    assert not ask_to_stop(lambda *_: None, "SIGTERM"), "there are no workers yet"
    assert not ask_to_stop(rank.call.remote, "SIGTERM"), "it does not take steps yet"
    ray.get(rank.train.remote())
    assert ray.get(rank.said.remote()) == "", "what was said before is another attempt's"
    assert ask_to_stop(rank.call.remote, "SIGTERM")
    assert ask_to_stop(rank.call.remote, "SIGHUP"), "it listens until it ends"
    assert ray.get(rank.said.remote()) == "SIGTERM"


def test_a_rank_that_hangs_or_has_died_does_not_listen(rank: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "ANSWER_S", 1.0)
    ray.get(rank.train.remote())
    pid: Any = ray.get(rank.pid.remote())
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(5, os.kill, (pid, signal.SIGCONT)).start()
    began = time.monotonic()
    assert not ask_to_stop(rank.call.remote, "SIGTERM")
    assert time.monotonic() - began < 4
    ray.kill(rank)
    assert not ask_to_stop(rank.call.remote, "SIGTERM")
