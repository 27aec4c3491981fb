"""The feed from shards in an S3 store beside the same shards on this disk: moto's server, in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import fsspec
import psutil
from records import record
from scale import STREAMS, Shape, make_config, write_corpus

from xalign_ray.feed.batches import open_local
from xalign_ray.shards.prepared import Prepared
from xalign_ray.work.mirror import local_folder
from xalign_ray.work.storage import CACHE

ROUNDS = 3
SHAPE = Shape(languages=9, workers=1, global_rows=512, tasks=1)
SHARDS = 24  # of the largest language
START_UP, SECONDS = 256, 10.0  # steps in which each source opens its first shards, not counted; of each arm in a round
URL = "s3://store/data"


def measure() -> list[dict[str, Any]]:
    """Wall time of steps at a consumer that does nothing; the cache is empty in each round, so all is fetched."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        sizes = [max(1, SHARDS // (n + 1)) for n in range(SHAPE.languages)]
        write_corpus(root / str(SHAPE.languages), SHAPE.languages, sizes)
        ends, port = context.Pipe()
        server = context.Process(target=_serve, args=(port,), daemon=True)
        server.start()
        os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_ENDPOINT_URL": ends.recv()}
        fsspec.filesystem("s3").mkdir("store")
        fsspec.filesystem("s3").put(f"{root / str(SHAPE.languages)}/", "store/data/", recursive=True)
        speeds: dict[str, list[float]] = {"disk": [], "store": []}
        busy = []
        for number in range(ROUNDS):
            speeds["disk"].append(_apart(context, root, ""))
            before = sum(psutil.Process(server.pid).cpu_times()[:2])
            began = time.perf_counter()
            speeds["store"].append(_apart(context, root, str(root / f"machine-{number}")))
            busy.append((sum(psutil.Process(server.pid).cpu_times()[:2]) - before) / (time.perf_counter() - began))
        server.kill()
    disk, store = (statistics.median(seen) for seen in speeds.values())
    return [
        record("scale/store_ratio", store / disk, 0.9,
               f"rows per second of wall time, {store:,.0f} and {disk:,.0f}; one process, and beside it the server, "
               f"which used {statistics.median(busy):.0%} of a core; medians of {ROUNDS} rounds")
    ]  # fmt: skip


def _serve(port: Any) -> None:
    from tests.s3_server import S3Server

    port.send(S3Server().url)
    time.sleep(1e6)


def _apart(context: Any, *arguments: Any) -> float:
    with context.Pool(1) as pool:
        return pool.apply(_speed, arguments)


def _speed(root: Path, cache: str) -> float:
    """Rows a second, after some steps that do not count."""
    if cache:
        os.environ[CACHE] = cache
    folder = local_folder(URL) if cache else root / str(SHAPE.languages)
    stream = open_local(Prepared.open(folder), make_config(root, SHAPE, STREAMS["text"]), 0, 0)
    for _ in range(START_UP):
        next(stream)
    began, rows = time.perf_counter(), 0
    while time.perf_counter() < began + SECONDS:
        rows += len(next(stream)["position"])
    return rows / (time.perf_counter() - began)
