"""Requests to stop from the driver to rank 0, wherever it is: heard by an attempt that takes steps, and by no other."""

from __future__ import annotations

from typing import Any

import pytest
import ray

from xalign_ray.train import worker
from xalign_ray.train.worker import ask_to_stop, asked_to_stop, has_failed, hear_stop, listens, say_failed

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


class Rank:
    """A worker in another process."""

    def train(self, attempt: str) -> None:
        worker.LOOK_S = 0.0
        self.heard = hear_stop(attempt)

    def asked(self) -> str:
        return self.heard()


def test_a_rank_that_takes_steps_hears_the_first_request_of_its_own_attempt() -> None:
    rank: Any = ray.remote(Rank).options(num_cpus=0).remote()
    ask_to_stop("before", "a node is drained")
    assert not listens("now"), "it does not take steps yet"
    ray.get(rank.train.remote("now"))
    assert listens("now")
    assert not listens("before")
    assert ray.get(rank.asked.remote()) == "", "what was asked before is another attempt's"
    ask_to_stop("now", "SIGTERM")
    assert ray.get(rank.asked.remote()) == "SIGTERM"
    ask_to_stop("now", "SIGHUP")
    assert ray.get(rank.asked.remote()) == "SIGTERM"
    assert asked_to_stop("before") == "a node is drained"
    assert not has_failed("now")
    say_failed("now")
    assert (listens("now"), has_failed("now")) == (False, True)
    ray.get(rank.train.remote("now"))
    assert (listens("now"), has_failed("now")) == (True, False)
    ray.kill(rank)
