"""Ray Data's steady throughput beside the same transform in process: one and two data workers."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    return _records(material, medians)


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
