"""Measures speed as ratios against peers in the same run: interleaved rounds, one core, medians; writes bench.json.

`python tests/bench/run.py [TEXT FILE ...]` measures on those files (one sentence a line); without them on the embedded
world, whose small vocabulary flatters what profits from repeated words: quote no figure of it.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}

import numpy as np
from rich.console import Console
from rich.table import Table

from xalign_ray.config.load import load_recipe
from xalign_ray.data import prepare as preparation
from xalign_ray.data.examples import Cutter, cut_documents, pack
from xalign_ray.data.prepared import Prepared
from xalign_ray.data.sources.records import Document
from xalign_ray.data.stream import Transform
from xalign_ray.text.order import Request

ROUNDS = 5
SENTENCES = 20_000


def main(files: list[str]) -> None:
    """Prepares a DICT-MLM recipe in a temporary folder, then times its stages against the raw tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        records = measure(Path(folder), files)
    Path("bench.json").write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    table = Table("name", "value", "target", "better", "how")
    for record in records:
        target = "report" if record["target"] is None else f"{record['target']:g}"
        table.add_row(record["name"], f"{record['value']:.2f}", target, record["better"], record["how"])
    Console().print(table)


def measure(folder: Path, files: list[str]) -> list[dict[str, Any]]:
    """The ratios, as the records of bench.json."""
    config = load_recipe("tiny/dict-mlm-50", [f"output={folder}", "train.global_batch_rows=512"]).config
    preparation._run_tasks = lambda tasks: [preparation.prepare_part(task) for task in tasks]  # in this process
    prepared = preparation.prepare(config)
    documents = read_documents(files or [str(path) for path in sorted((folder / "demo" / "wiki").glob("*.jsonl"))])
    lines = [line for document in documents for line in document.paragraphs]
    cutter = open_cutter(prepared, config.data.capacity)
    transform = Transform(prepared, config)
    begun = {"round": 0}

    def raw() -> int:
        return sum(len(one.ids) for one in cutter.backend.encode_batch_fast(lines, add_special_tokens=False))

    def prepare() -> int:
        return len(pack(cut_documents(cutter, documents).trained, cutter.capacity, "bench").pieces)

    def feed() -> int:
        begun["round"] += 1  # rows that were not asked for before
        columns = transform(Request(begun["round"], begun["round"] * 16, begun["round"] * 16 + 16, 0, 512))
        return int((columns["example_ids"] > 0).sum())

    speeds = interleave({"raw": raw, "prepare": prepare, "feed": feed})
    against = "tokens/s against encode_batch_fast of the same tokenizer, one core"
    where = "given text" if files else "embedded world"
    return [
        record(
            "data/prepare_ratio", speeds["prepare"] / speeds["raw"], 1.0, f"text -> packed rows, {against}, {where}"
        ),
        record("data/feed_ratio", speeds["feed"] / speeds["raw"], 3.0, f"shards -> DICT-MLM rows, {against}, {where}"),
        record("data/raw_tokens_per_s", speeds["raw"], None, f"encode_batch_fast, one core, {where}"),
    ]


def record(name: str, value: float, target: float | None, how: str) -> dict[str, Any]:
    """One record of bench.json; a target of None is a figure to report."""
    return {"name": name, "value": value, "target": target, "better": "higher", "how": how}


def interleave(arms: dict[str, Callable[[], int]]) -> dict[str, float]:
    """Median tokens per CPU second of each arm; the first round warms up and does not count."""
    seen: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(ROUNDS + 1):
        for name, arm in arms.items():
            began = time.process_time()
            tokens = arm()
            seen[name].append(tokens / (time.process_time() - began))
    return {name: statistics.median(speeds[1:]) for name, speeds in seen.items()}


def read_documents(files: list[str]) -> list[Document]:
    """The first sentences of the files, as documents of ten."""
    lines: list[str] = []
    for file in files:
        for line in Path(file).read_text(encoding="utf-8").splitlines():
            lines += json.loads(line)["text"].split("\n") if file.endswith(".jsonl") else [line]
    chosen = np.random.default_rng(0).permutation(len(lines))[:SENTENCES]
    kept = [lines[i] for i in chosen]
    return [Document("en", tuple(kept[i : i + 10]), "bench", i) for i in range(0, len(kept), 10)]


def open_cutter(prepared: Prepared, capacity: int) -> Cutter:
    """What prepare cuts text with, here with nothing held out."""
    folder = str(prepared.folder)
    entries = preparation._open_entries(folder)
    return Cutter(preparation._open_backend(folder), prepared.languages, entries, capacity, False, 0.0)


if __name__ == "__main__":
    main(sys.argv[1:])
