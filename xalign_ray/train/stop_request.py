"""The word to stop on its way from the driver to the training workers, which may be on another machine."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

POLL_S = 2.0  # how long rank 0 waits for an answer before it asks again, which says that it lives
HEARD_S = 3 * POLL_S  # without a question, after which nobody listens


class StopRequest:
    """An actor on the driver's node: the driver asks, rank 0 waits for it. It ends with its driver."""

    def __init__(self) -> None:
        self._name = ""
        self._asked = asyncio.Event()
        self._heard_at = -math.inf

    async def ask(self, name: str) -> float:
        """Says that a signal asked the job to stop; for how many seconds nobody has listened."""
        self._name = name
        self._asked.set()
        return time.monotonic() - self._heard_at

    async def wait(self) -> str:
        """The signal's name, empty if there was none for a while."""
        self._heard_at = time.monotonic()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._asked.wait(), POLL_S)
        self._heard_at = time.monotonic()
        return self._name


def open_stop_request() -> Any:
    """A request that nobody has made yet."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    return ray.remote(StopRequest).options(num_cpus=0, scheduling_strategy=here).remote()


def hear_stop(request: Any) -> Callable[[], str]:
    """Waits in a thread, so that to look costs a step nothing; gives the signal's name, empty while there is none."""
    heard: list[str] = []

    def wait() -> None:
        with suppress(RayError):  # the driver is gone, and this worker is about to follow
            while True:  # also when it has heard: the driver asks whether somebody ends a step
                name: str = ray.get(request.wait.remote())
                if name:
                    heard.append(name)
                    time.sleep(POLL_S)

    threading.Thread(target=wait, name="stop-request", daemon=True).start()
    return lambda: heard[0] if heard else ""
