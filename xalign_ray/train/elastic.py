"""A run whose nodes come and go: smaller at once when one is lost, larger after a checkpoint when there is room."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from xalign_ray.config.schema import ParallelConfig
from xalign_ray.errors import ConfigError, NotPlacedError, StoppedError, WorkersDiedError
from xalign_ray.track.events import EventReader
from xalign_ray.train.room import fit, fit_free, has_free, wait_for_room
from xalign_ray.train.stop_request import HEARD_S, open_stop_request
from xalign_ray.work import stops

LOOK_S = 2.0  # how often the nodes are counted
STEADY_S = 10.0  # how long there has been room before it is used: a node may come and go
GROWS = "room for more workers"  # why the job stops, where a signal's name would be

Attempt = Callable[[ParallelConfig, Any], None]


def run_elastic(parallel: ParallelConfig, log: Path, attempt: Attempt) -> None:
    """Trains to the last step with as many workers as there is room for, from `parallel.min_workers` to `workers`.

    Args:
        parallel: the recipe's.
        log: the run's events.
        attempt: trains with a number of workers, until it ends or hears a request to stop.

    Raises:
        ConfigError: there is no room for the fewest, and no autoscaler has brought nodes in time.
        WorkersDiedError: more often than `parallel.max_failures`.
        StoppedError: by another than us.
    """
    deaths, placed = 0, True
    while True:
        now, stop = wait_for_room(parallel), open_stop_request()
        now, placed = now if placed else fit_free(now), True
        if now.workers < parallel.workers:
            _say(f"training with {now.workers} of {parallel.workers} workers (parallel.min_workers)")
        try:
            with _grown(parallel, now.workers, log, stop) as grows:
                return attempt(now, stop)
        except StoppedError:
            if not grows.is_set() or stops.asked():
                raise
        except NotPlacedError:
            placed = False
            _say("the cluster's nodes have other work; waiting for room for the workers")
        except WorkersDiedError as died:
            deaths += 1
            if deaths > parallel.max_failures:
                raise
            _say(f"workers were lost; going on from the newest checkpoint: {died.why}")


@contextmanager
def _grown(parallel: ParallelConfig, workers: int, log: Path, stop: Any) -> Iterator[threading.Event]:
    """Inside, a thread asks the attempt to stop for a larger one; the event says that it did.

    Not before the attempt has saved something: nodes that come and go must not keep a run from going on.
    """
    grows, over, saved = threading.Event(), threading.Event(), EventReader(log)
    for _ in saved.stream():
        pass  # of earlier attempts

    def watch() -> None:
        steady, has_saved = 0.0, False
        while not over.wait(LOOK_S):
            has_saved = has_saved or any(event["event"] == "checkpoint" for event in saved.read())
            steady = steady + LOOK_S if _has_room(parallel, workers) else 0.0
            if has_saved and steady >= STEADY_S:
                with suppress(RayError):
                    silent_s: float = ray.get(stop.ask.remote(GROWS))
                    if silent_s < HEARD_S:
                        grows.set()
                return

    thread = threading.Thread(target=watch, name="elastic", daemon=True)
    if workers < parallel.workers:
        thread.start()
    try:
        yield grows
    finally:
        over.set()
        if thread.is_alive():
            thread.join()


def _has_room(parallel: ParallelConfig, workers: int) -> bool:
    with suppress(ConfigError):
        larger = fit(parallel).workers
        return larger > workers and has_free(parallel, larger - workers)
    return False


def _say(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")
