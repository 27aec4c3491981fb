"""Detects stalled steps and names the workers that stall them."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable

import torch.distributed as dist

from xalign_ray.private.torch import job_store
from xalign_ray.train.distributed import Workers

BEATS = 12  # within the limit: a worker that has missed BEATS // 3 of them does not answer
WAITS, COMPUTES = "waits for data", "computes"
_ORDER = (WAITS, COMPUTES)  # within a step


class StallWatch:
    """A thread of each rank writes the rank's place to the job's store; rank 0's thread looks at all.

    No rank can be made to leave a collective operation that another one does not enter: rank 0's process ends, and with
    it the attempt. Where rank 0 itself does not answer, Ray's own health check or the process group's timeout finds it.
    """

    def __init__(self, workers: Workers, limit_s: float, say: Callable[[str], None]) -> None:
        """`say` is given the sentence, before rank 0's process ends."""
        self._workers, self._limit, self._say = workers, limit_s, say
        self._place: tuple[int, str, float] = (0, WAITS, float("inf"))
        # The last beat of each rank, and when it was another than the one before.
        self._heard = {rank: ([0, f"worker {rank}", 0, WAITS], time.monotonic()) for rank in range(workers.size)}
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="stall-watch", daemon=True).start()

    def enter(self, step: int, doing: str) -> None:
        """This rank begins one of the two parts of a step, from 1."""
        self._place = (step, doing, time.monotonic())

    def pause(self) -> None:
        """It does something that may take long, such as to save a checkpoint."""
        self._place = (*self._place[:2], float("inf"))

    def close(self) -> None:
        """Ends the watch."""
        self._over.set()

    def _watch(self) -> None:
        name, beat = f"worker {self._workers.rank} (pid {os.getpid()} on {socket.gethostname()})", 0
        while not self._over.wait(self._limit / BEATS):
            step, doing, since = self._place
            beat += 1
            try:
                store = job_store()
                store.set(f"beat/{self._workers.rank}", json.dumps([beat, name, step, doing]))
                if self._workers.rank == 0:
                    for rank, (before, _) in self._heard.items():
                        if store.check([f"beat/{rank}"]) and (heard := json.loads(store.get(f"beat/{rank}"))) != before:
                            self._heard[rank] = heard, time.monotonic()
            except dist.DistError:
                return  # rank 0, whose process holds the store, is gone: the next collective operation raises
            if self._workers.rank == 0 and time.monotonic() - since > self._limit and not self._over.is_set():
                self._end(step)

    def _end(self, step: int) -> None:
        self._say(
            f"Step {step} has not ended for {self._limit:g} s (parallel.step_timeout_s): {self._who()}. This attempt "
            "ends; the next one goes on from the newest checkpoint."
        )
        sys.stderr.flush()
        os._exit(1)

    def _who(self) -> str:
        """The workers that hold the others up."""
        now = time.monotonic()
        silent = [beat for beat, at in self._heard.values() if now - at > self._limit / 3]
        if silent:
            return " and ".join(f"{name} does not answer" for _, name, *_ in silent)
        places = {rank: (step, _ORDER.index(doing)) for rank, ((_, _, step, doing), _) in self._heard.items()}
        behind = min(places.values())
        named = [
            f"{self._heard[rank][0][1]} {_ORDER[at[1]]}, in step {at[0]}"
            for rank, at in sorted(places.items())
            if at == behind
        ]
        return " and ".join(named[:4]) + (f" and {len(named) - 4} more" if len(named) > 4 else "")
