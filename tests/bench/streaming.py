"""Ray Data's steady throughput beside the same transform in process: one and two data workers, and 64 consumers."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
from corpus import GLOBAL_ROWS, Material, make_config, prepare_here, text_tokens_per_row, write_round
from records import record

from xalign_ray.config.schema import RunConfig
from xalign_ray.feed.batches import BatchReader, open_local
from xalign_ray.shards.prepared import Prepared
from xalign_ray.streams.collate import Columns

ROUNDS = 3
MAX_MEGABYTES = 20  # of text: rows are read again and again
START_UP = 16  # blocks that do not count: processes start, caches fill
BLOCKS = 96  # that count
BLOCK_STEPS = 16  # of a full block, about
CPUS = 2
HUNGRY, HUNGRY_CPUS = 64, 8  # consumers that do nothing else, and logical CPUs of the data tasks that serve them
HUNGRY_ROWS, HUNGRY_STEPS = 8192, 320  # of the global batch; steps: all that is made is consumed


def measure(material: Material) -> list[dict[str, Any]]:
    """Wall time, as data workers are processes: it needs a machine where nothing else runs."""
    folder = material.folder / "streaming"
    folder.mkdir()
    megabytes = min(material.megabytes, MAX_MEGABYTES)
    for number in range(2):
        write_round(material, folder, number, megabytes)
    config = make_config(material, folder, 2, f"train.max_steps={(START_UP + BLOCKS) * BLOCK_STEPS}")
    prepared = prepare_here(config)
    one, two = (config.model_copy(update={"parallel": config.parallel.model_copy(update={"data_cpus": cpus})})
                for cpus in (CPUS, CPUS / 2))  # fmt: skip
    begins = {request.first for request in BatchReader(prepared, config).requests(0, 0)}
    speeds: dict[str, list[float]] = {"process": [], "processes": [], "one": [], "two": []}
    for _ in range(ROUNDS):
        speeds["process"].append(_speed(open_local(prepared, config, 0, 0), begins))
        speeds["processes"].append(_speed_of_two(prepared, config, begins))
        speeds["one"].append(_speed_on_ray(prepared, one, begins))
        speeds["two"].append(_speed_on_ray(prepared, two, begins))
    medians = {name: statistics.median(seen) * text_tokens_per_row(prepared) for name, seen in speeds.items()}
    return [*_records(material, medians), _feed_many(prepared, config)]


def _speed_of_two(prepared: Prepared, config: RunConfig, begins: set[int]) -> float:
    """Of two processes that each make all blocks, without Ray: what this machine can do at most."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        return sum(pool.starmap(_speed_alone, [(prepared.folder, config, begins)] * 2, chunksize=1))


def _speed_alone(folder: Path, config: RunConfig, begins: set[int]) -> float:
    return _speed(open_local(Prepared.open(folder), config, 0, 0), begins)


def _speed_on_ray(prepared: Prepared, config: RunConfig, begins: set[int]) -> float:
    """On a cluster of its own: Ray Data keeps the CPUs of an executor that was killed from the next for EXPIRE_S."""
    import ray

    from xalign_ray.feed.on_ray import Feed, start_server

    ray.init(address="local", num_cpus=CPUS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        return _speed(Feed(prepared, config, 0, 0, lambda own: own, start_server(prepared, config)), begins)
    finally:
        ray.shutdown()


def _speed(stream: Iterator[Columns], begins: set[int]) -> float:
    """Rows a second of wall time, from the arrival of the first block that counts to that of the last."""
    began = now = 0.0
    rows = counted = blocks = 0
    for step, share in enumerate(stream):
        if step in begins:
            blocks += 1
            if blocks > START_UP:
                now = time.perf_counter()
                began = began or now
                counted = rows
        if began:
            rows += len(share["position"])
    return counted / (now - began)


def _records(material: Material, speeds: dict[str, float]) -> list[dict[str, Any]]:
    how = (
        f"token shards -> DICT-MLM batches of {GLOBAL_ROWS} rows at the consumer, text tokens per second of wall time, "
        f"median of {ROUNDS} interleaved rounds, start-up left out, {material.where}"
    )
    told = ", ".join(f"{name} {speed / 1e6:.2f} M tokens/s" for name, speed in speeds.items())
    return [
        record("data/ray_ratio", speeds["one"] / speeds["process"], 0.85,
               f"Ray Data with one data worker against the same transform in process; {told}; {how}"),
        record("data/ray_scaling", speeds["two"] / speeds["one"], 1.7,
               f"two data workers against one, {os.cpu_count()} cores, on which Ray and the idle consumer run; two "
               f"processes without Ray against one: {speeds['processes'] / speeds['process']:.2f}; {how}"),
    ]  # fmt: skip


def _feed_many(prepared: Prepared, config: RunConfig) -> dict[str, Any]:
    """Steps a second that 64 consumers get who do nothing else, and where the CPU time of the machine goes."""
    import ray

    from xalign_ray.feed.on_ray import Feed, start_server

    config = config.model_copy(
        update={
            "parallel": config.parallel.model_copy(update={"data_cpus": 1.0, "workers": HUNGRY}),
            "train": config.train.model_copy(update={"global_batch_size": HUNGRY_ROWS, "max_steps": HUNGRY_STEPS}),
        }
    )
    ray.init(address="local", num_cpus=HUNGRY_CPUS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    server = start_server(prepared, config)
    together = threading.Barrier(HUNGRY)
    marks: list[tuple[float, dict[tuple[int, str], float]]] = []

    def consume(rank: int) -> None:
        stream = Feed(prepared, config, 0, rank, lambda _: server, server if rank == 0 else None)
        for steps in (1, HUNGRY_STEPS - 1):
            assert sum(1 for _ in islice(stream, steps)) == steps
            if together.wait() == 0:
                marks.append((time.perf_counter(), _cpu_seconds()))
            together.wait()
        stream.close()

    try:
        with ThreadPoolExecutor(HUNGRY) as consumers:
            for done in [consumers.submit(consume, rank) for rank in range(HUNGRY)]:
                done.result()
    finally:
        ray.shutdown()
    (began, before), (ended, after) = marks
    wall, cores = ended - began, os.cpu_count() or 1
    spent: dict[str, float] = {}
    for (pid, name), seconds in after.items():
        spent[name] = spent.get(name, 0.0) + (seconds - before.get((pid, name), 0.0)) / wall / cores
    told = ", ".join(f"{name} {share:.1%}" for name, share in sorted(spent.items(), key=lambda one: -one[1])[:6])
    return record("data/steps_per_s_64_consumers", (HUNGRY_STEPS - 1) / wall, None,
                  f"steps of {HUNGRY_ROWS:,} rows for {HUNGRY} consumers without a model, {HUNGRY_CPUS} logical data "
                  f"tasks on {cores} cores; of the machine's CPU time: {told}")  # fmt: skip


def _cpu_seconds() -> dict[tuple[int, str], float]:
    """Of this process and of Ray's, by number and name."""
    found: dict[tuple[int, str], float] = {}
    for process in psutil.process_iter(["cmdline", "cpu_times", "name"]):
        name = (process.info["cmdline"] or [""])[0]
        if process.pid == os.getpid():
            name = "consumers"
        elif process.info["name"] in ("raylet", "gcs_server"):
            name = process.info["name"]
        elif not name.startswith("ray::"):
            continue
        name = "data tasks" if name.startswith(("ray::MapBatches", "ray::IDLE")) else name.partition("(")[0]
        found[process.pid, name] = sum(process.info["cpu_times"][:2])
    return found
