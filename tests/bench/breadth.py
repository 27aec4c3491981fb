"""The feed and what surrounds it at 1,833 languages, as mmBERT has, against 104; no model, no Ray."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from records import record
from scale import (
    LARGE,
    LENGTH,
    ROUNDS,
    STREAMS,
    _apart,
    _entry,
    _make_blocks,
    _medians,
    _random_rows,
    make_config,
    write_manifest,
)

from xalign_ray.config.language_codes import is_language
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.planning.describe import describe
from xalign_ray.shards.files import SHARD_ROWS, ShardWriter
from xalign_ray.shards.planned import planned_shares
from xalign_ray.shards.prepared import Prepared

FEW = replace(
    LARGE, alpha=0.3, tasks=15, warm_up=LARGE.workers
)  # which has no divisor in common with the ranks: a task meets all of them
MANY = replace(FEW, languages=1833)
# Ranks of mmBERT's languages by size and their tokens in its decay phase (statistics/language_counts.csv of its
# repository, rounded); sizes of other ranks lie on straight lines between these in the logarithms.
RANKS = (1, 2, 10, 60, 110, 250, 500, 1000, 1833)
TOKENS = (1.2e10, 6.3e9, 2.1e9, 5.1e8, 2.3e8, 3.3e7, 3.6e6, 5.5e5, 5e2)
MOST_SHARDS = 300  # of a language
SMALL_SHARDS = (4096, 1024, 256, 64, 16, 4)  # rows of the one shard of a language that does not fill one


def measure() -> list[dict[str, Any]]:
    """Tokens per CPU second of making blocks, each shape in a process of its own; seconds of the rest."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for shape in (FEW, MANY):
            _write_corpus(root / str(shape.languages), shape.languages)
        runs: dict[int, list[dict[str, float]]] = {LARGE.languages: [], MANY.languages: []}
        for _ in range(ROUNDS):
            for shape in (FEW, MANY):
                runs[shape.languages].append(_apart(_make_blocks, root, shape, "text"))
        found = {languages: _medians(rounds) for languages, rounds in runs.items()}
        seconds = _apart(_time_the_rest, root)
    few, many = found[LARGE.languages], found[MANY.languages]
    how = (
        f"text, {LENGTH} tokens a row, {LARGE.workers} ranks x {LARGE.global_rows} rows, one of {FEW.tasks} data tasks"
    )
    told = ", ".join(f"{n}: {one['speed'] / 1e6:.2f} M tokens per CPU second" for n, one in found.items())
    return [
        record("breadth/feed_ratio", many["speed"] / few["speed"], 0.8,
               f"1,833 languages against 104, sizes as mmBERT's, alpha 0.3; {told}; {how}, no Ray"),
        record("breadth/rows_decoded", many["decoded"], 3, f"per row used at 1,833 languages; {how}", "lower"),
        record("breadth/task_gib", many["gib"], 1.5, "peak resident memory of the process that makes blocks", "lower"),
        *(record(f"breadth/{name}_s", value, 10, f"{name.replace('_', ' ')} at 1,833 languages", "lower")
          for name, value in seconds.items()),
    ]  # fmt: skip


def _sizes(languages: int) -> list[int]:
    """Rows of each language."""
    ranks = np.arange(1, languages + 1)
    return np.maximum(4, np.exp(np.interp(np.log(ranks), np.log(RANKS), np.log(TOKENS))) / LENGTH).astype(int).tolist()


def _codes(languages: int) -> list[str]:
    """As many codes of languages."""
    letters = [chr(ord("a") + n) for n in range(26)]
    every = (a + b + c for a in letters for b in letters for c in letters)
    return [code for code, _ in zip(filter(is_language, every), range(languages), strict=False)]


def _write_corpus(folder: Path, languages: int) -> None:
    """Prepared text of each language: a few random shards under many names."""
    random = np.random.default_rng(0)
    written: dict[int, dict[str, Any]] = {}
    for rows in (SHARD_ROWS, *SMALL_SHARDS):
        with ShardWriter(folder / f"rows-{rows}") as writer:
            writer.append(_random_rows(rows, 1, random))
        written[rows] = _entry(writer.shards[0].path.name, writer.shards[0].footer) | {"rows": rows}
    pools = []
    for number, (code, rows) in enumerate(zip(_codes(languages), _sizes(languages), strict=True)):
        full = min(MOST_SHARDS, rows // SHARD_ROWS)
        sizes = [SHARD_ROWS] * full or [next((one for one in SMALL_SHARDS if one <= rows), SMALL_SHARDS[-1])]
        mine = []
        for shard, size in enumerate(sizes):
            name = f"text-{number}-{shard}.parquet"
            os.link(folder / written[size]["file"], folder / name)
            mine.append(written[size] | {"file": name})
        pools.append((f"text/{code}", mine))
    write_manifest(folder, pools)


def _config(root: Path) -> RunConfig:
    """A recipe of all languages; its inputs are never looked at."""
    path = root / "many.yaml"
    corpora = [{"format": "text", "language": code, "paths": [f"{code}.txt"]} for code in _codes(MANY.languages)]
    tree = {"data": {"corpora": corpora, "max_seq_length": LENGTH, "dictionaries": []}, "sampling": {"alpha": 0.3}}
    path.write_text(yaml.safe_dump({"extends": "tiny/mlm", **tree}))
    return make_config(root, MANY, STREAMS["text"], str(path))


def _time_the_rest(root: Path) -> dict[str, float]:
    """Seconds of what is done once for a run or a plan."""
    found: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        given = work()
        found[name] = round(time.process_time() - began, 3)
        return given

    config = timed("loading_the_recipe", lambda: _config(root))
    timed("planning", lambda: describe(load_recipe(str(root / "many.yaml"))))
    prepared = timed("opening_the_data", lambda: Prepared.open(root / str(MANY.languages)))
    short = config.model_copy(update={"train": config.train.model_copy(update={"max_steps": 100_000})})
    timed("shares_of_100,000_steps", lambda: planned_shares(prepared, short))
    order = prepared.order(config)
    timed("rows_before_step_500,000", lambda: order.sampled_before(500_000 // order.chunk_steps))
    return found
