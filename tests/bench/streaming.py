"""Ray Data's steady throughput, one and two data workers, beside the same transform in this process."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from typing import Any

from corpus import GLOBAL_ROWS, Material, make_config, prepare_here, text_tokens_per_row, write_round
from records import record

from xalign_ray.config.schema import RunConfig
from xalign_ray.data.batches import BatchReader
from xalign_ray.data.local import open_local
from xalign_ray.data.prepared import Prepared
from xalign_ray.text.collate import Columns

ROUNDS = 3
MAX_MEGABYTES = 20  # of text: rows are read again and again
START_UP = 8  # blocks that do not count: processes start, caches fill
BLOCK_STEPS = 16  # of a full block, about
CPUS = 2


def measure(material: Material) -> list[dict[str, Any]]:
    """Wall time, as data workers are processes: it needs a machine where nothing else runs."""
    import ray

    folder = material.folder / "streaming"
    folder.mkdir()
    megabytes = min(material.megabytes, MAX_MEGABYTES)
    for number in range(2):
        write_round(material, folder, number, megabytes)
    config = make_config(material, folder, 2, f"train.max_steps={_steps(material.megabytes)}")
    prepared = prepare_here(config)
    one, two = (config.model_copy(update={"parallel": config.parallel.model_copy(update={"data_cpus": cpus})})
                for cpus in (CPUS, CPUS / 2))  # fmt: skip
    begins = {request.first for request in BatchReader(prepared, config).requests(0, 0)}
    ray.init(address="local", num_cpus=CPUS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    speeds: dict[str, list[float]] = {"process": [], "one": [], "two": []}
    try:
        for _ in range(ROUNDS):
            speeds["process"].append(_speed(open_local(prepared, config, 0, 0), begins))
            speeds["one"].append(_speed(_open_ray(prepared, one), begins))
            speeds["two"].append(_speed(_open_ray(prepared, two), begins))
    finally:
        ray.shutdown()
    return _records(
        material, {name: statistics.median(seen) * text_tokens_per_row(prepared) for name, seen in speeds.items()}
    )


def _steps(megabytes: float) -> int:
    blocks = START_UP + 1 + max(4, int(megabytes * 0.24))
    return blocks * BLOCK_STEPS


def _open_ray(prepared: Prepared, config: RunConfig) -> Iterator[Columns]:
    from xalign_ray.data.feed import open_feed

    return open_feed(prepared, config, 0, 0, lambda own: own)


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
        record("data/ray_ratio", speeds["one"] / speeds["process"], 0.6,
               f"Ray Data with one data worker against the same transform in process; {told}; {how}"),
        record("data/ray_scaling", speeds["two"] / speeds["one"], None,
               f"two data workers against one, {os.cpu_count()} cores, on which the consumer runs too; {how}"),
    ]  # fmt: skip
