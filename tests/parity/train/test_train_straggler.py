"""A worker that holds the others up is named in the log of a real job of two processes, with what makes it late."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.parity.train import synthetic
from tests.parity.train.pool import Pool
from xalign_ray.train.distributed import Workers

STEPS, LATE_S = 8, 0.2


def train_with_late_rows(workers: Workers, folder: Path, late: int) -> None:
    config = synthetic.config(parallel__workers=2, train__max_steps=STEPS)

    def open_batches(first: int, rank: int, size: int) -> Iterator[Any]:
        for batch in synthetic.stream(config, first, rank, size):
            time.sleep(LATE_S if rank == late else 0)
            yield batch

    synthetic.run(config, folder, workers, open_batches=open_batches)


def test_a_worker_whose_rows_come_late_is_named(two: Pool, tmp_path: Path) -> None:
    two.call(train_with_late_rows, tmp_path, 1)
    events = synthetic.read_events(tmp_path / "events.jsonl")
    (start,) = [event for event in events if event["event"] == "start"]
    named = [event for event in events if event["event"] == "straggler"]
    host = start["hosts"][1]
    said = rf"Worker 1 on {re.escape(host)} holds the others up: they wait \d+ of the \d+ ms of a step for it, because "
    assert [event["step"] for event in named] == [STEPS]  # the first step alone is not enough
    assert re.fullmatch(said + r"it waits \d+ ms for its rows\.", named[-1]["text"])
    last = [event for event in events if event["event"] == "data"][-1]
    held, waits = last["held_up_ms"], last["data_wait_ms"]
    assert held[0] > LATE_S * 500 > held[1]
    assert waits[1] > LATE_S * 500 > waits[0]
