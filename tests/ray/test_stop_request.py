"""The word to stop between the driver and rank 0: who has died does not listen, who ends a step still does."""

from __future__ import annotations

import math
import threading
import time

import pytest
import ray

from xalign_ray.train.stop_request import HEARD_S, POLL_S, hear_stop, open_stop_request

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


def test_a_rank_that_asks_no_more_does_not_listen() -> None:
    request = open_stop_request()
    assert ray.get(request.ask.remote("SIGTERM")) == math.inf
    assert ray.get(request.wait.remote()) == "SIGTERM"  # its last question
    silent = ray.get(request.ask.remote("SIGTERM"))
    time.sleep(1)
    assert 1 <= ray.get(request.ask.remote("SIGTERM")) - silent < 2


def test_a_rank_hears_the_signal_once_and_listens_until_it_ends() -> None:
    request = open_stop_request()
    heard = hear_stop(request)
    time.sleep(POLL_S + 1)  # longer than one question waits
    assert heard() == ""
    assert ray.get(request.ask.remote("SIGTERM")) < HEARD_S
    until = time.monotonic() + 30
    while not heard():
        assert time.monotonic() < until
        time.sleep(0.05)
    assert heard() == "SIGTERM"
    time.sleep(2 * POLL_S)
    assert ray.get(request.ask.remote("SIGTERM")) < HEARD_S
    ray.kill(request)  # as when the driver ends
    (listening,) = (thread for thread in threading.enumerate() if thread.name == "stop-request")
    listening.join(30)
    assert not listening.is_alive()
