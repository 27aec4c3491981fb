"""The log of a real job of two processes has how long each rank waited for its rows, and for the other."""

from __future__ import annotations

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


def test_waits_of_each_rank_show_whose_rows_come_late(two: Pool, tmp_path: Path) -> None:
    two.call(train_with_late_rows, tmp_path, 1)
    (*_, last) = [e for e in synthetic.read_events(tmp_path / "events.jsonl") if e["event"] == "data"]
    held, waits = last["held_up_ms"], last["data_wait_ms"]
    assert held[0] > LATE_S * 500 > held[1]
    assert waits[1] > LATE_S * 500 > waits[0]
