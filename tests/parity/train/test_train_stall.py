"""A worker that hangs is named, and the attempt ended, in a job of two processes; a slow one is left alone."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parity.train import synthetic
from xalign_ray.train.distributed import setup_workers

LIMIT_S, STEPS, HANGS_AT, PATIENCE_S = 3.0, 5, 2, 60


def train_as(rank: int, port: int, folder: Path, hang: str) -> None:
    """One of two processes; rank 1 hangs before its third batch, in it, or only takes its time."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    config = synthetic.config(parallel__workers=2, parallel__step_timeout_s=LIMIT_S, train__max_steps=STEPS)

    def open_batches(first: int, rank: int, workers: int) -> Iterator[Any]:
        for step, batch in enumerate(synthetic.stream(config, first, rank, workers), first):
            if step == HANGS_AT and rank == 1:
                if hang == "stopped":
                    time.sleep(1)  # so that it has been heard
                    os.kill(os.getpid(), signal.SIGSTOP)
                time.sleep(1.5 if hang == "slow" else PATIENCE_S)
            yield batch

    synthetic.run(config, folder, setup_workers(config.parallel), open_batches=open_batches)


@pytest.mark.parametrize(
    ("hang", "said"),
    [
        ("data", r"worker 1 \(pid {pid} on \S+\) waits for data, in step 3"),
        ("stopped", r"worker 1 \(pid {pid} on \S+\) does not answer"),
        ("slow", None),
    ],
)
def test_a_worker_that_hangs_is_named(tmp_path: Path, hang: str, said: str | None) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.parity.train.warm"])
    pair = [context.Process(target=train_as, args=(rank, port, tmp_path, hang)) for rank in range(2)]
    for process in pair:
        process.start()
    pair[0].join(PATIENCE_S)
    assert pair[0].exitcode == (0 if said is None else 1)
    stalled = [event for event in synthetic.read_events(tmp_path / "events.jsonl") if event["event"] == "stalled"]
    if said is None:
        pair[1].join(PATIENCE_S)
        assert not stalled
        assert len(synthetic.losses(tmp_path)) == STEPS
        return
    pair[1].kill()
    pair[1].join()
    (event,) = stalled
    assert event["step"] == HANGS_AT
    who = said.replace("{pid}", str(pair[1].pid))
    begins = r"Step 3 has not ended for 3 s \(parallel\.step_timeout_s\): "
    ends = r"\. This attempt ends; the next one goes on from the newest checkpoint\."
    assert re.fullmatch(begins + who + ends, event["text"]), event["text"]
