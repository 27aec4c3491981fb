"""The word to stop on its way from the driver to the training workers, which may be on another machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


class StopRequest:
    """An actor on the driver's node: the driver asks, rank 0 waits for it. It ends with its driver."""

    def __init__(self) -> None:
        self._name = ""
        self._asked = asyncio.Event()
        self._waiting = 0

    async def ask(self, name: str) -> bool:
        """Says that a signal asked the job to stop; whether somebody heard it."""
        self._name = name
        self._asked.set()
        return self._waiting > 0

    async def wait(self) -> str:
        """The signal's name, once there was one."""
        self._waiting += 1
        try:
            await self._asked.wait()
            return self._name
        finally:
            self._waiting -= 1


def open_stop_request() -> Any:
    """A request that nobody has made yet."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    return ray.remote(StopRequest).options(num_cpus=0, scheduling_strategy=here).remote()


def hear_stop(request: Any) -> Callable[[], str]:
    """Waits in a thread, so that to look costs a step nothing; gives the signal's name, empty while there is none."""
    heard: list[str] = []

    def wait() -> None:
        with suppress(RayError):  # the driver is gone, and this worker is about to follow
            heard.append(ray.get(request.wait.remote()))

    threading.Thread(target=wait, name="stop-request", daemon=True).start()
    return lambda: heard[0] if heard else ""
