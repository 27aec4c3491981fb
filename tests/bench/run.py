"""Measures speed as ratios against peers in the same run: interleaved rounds, one core, medians; writes bench.json.

`python tests/bench/run.py [MEGABYTES]`: text of each measured setting, 100 by default; XALIGN_BENCH_MB says the same.
Text is generated from the real pack (XALIGN_REAL_TEXT, a folder of LANGUAGE.txt); where that is missing from the
embedded world, whose small vocabulary flatters what profits from repeated words: quote no figure of it.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
sys.path.insert(0, str(Path(__file__).parents[2]))

from generated import REAL, Source, generate, read_sources
from objectives import measure as measure_objectives
from prepare import ROUNDS, share_equal, time_prepare, train_tokenizers
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

from xalign_ray.config.load import load_recipe
from xalign_ray.data import prepare as preparation
from xalign_ray.data.part import prepare_part
from xalign_ray.data.stream import Transform
from xalign_ray.demo.writer import write_demo
from xalign_ray.text.order import Request

RATES = (0.5, 1.2, 3.0, 5.0)  # new chunks per 100 tokens
TARGET_RATE = 1.2
LINES_PER_MEGABYTE = 10_000  # whose ids are compared: a million at full size


def main(megabytes: float) -> None:
    """Prints the table, and writes bench.json into the current folder."""
    with tempfile.TemporaryDirectory() as folder:
        records = measure(Path(folder), megabytes) + measure_objectives()
    Path("bench.json").write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    table = Table("name", "value", "target", "better", "how")
    for one in records:
        target = "report" if one["target"] is None else f"{one['target']:g}"
        table.add_row(one["name"], f"{one['value']:.4g}", target, one["better"], one["how"])
    Console().print(table)


def measure(folder: Path, megabytes: float) -> list[dict[str, Any]]:
    """The ratios, as the records of bench.json."""
    files = sorted(REAL.glob("*.txt")) if REAL.is_dir() else write_demo_text(folder)
    where = f"{megabytes:g} MB made of {'the real pack' if REAL.is_dir() else 'the embedded world'}"
    sources = read_sources(files)
    tokenizers = train_tokenizers(sources, megabytes)
    records = []
    for kind, backend in tokenizers.items():
        for rate in RATES if kind == "wordpiece" else (TARGET_RATE,):
            found = time_prepare(folder / f"{kind}-{rate}", backend, sources, megabytes, rate)
            said = f"text file -> token shards / encode_batch_fast, CPU, {found['new']:.2f} new chunks per 100 tokens"
            target = 1.0 if kind == "wordpiece" and rate == TARGET_RATE else None
            records.append(record(f"data/prepare_ratio/{kind}/{rate:g}", found["ratio"], target, f"{said}, {where}"))
        equal, lines = share_equal(backend, sources, int(megabytes * LINES_PER_MEGABYTE))
        records.append(record(f"data/ids_equal/{kind}", equal, 1.0, f"share of {lines:,} lines, hostile ones included"))
        how = f"real text, nothing learnt before: {found['cold_new']:.1f} new chunks per 100 tokens"
        records.append(record(f"data/prepare_ratio_cold/{kind}", found["cold_ratio"], None, how))
    return records + measure_feed(folder, tokenizers["wordpiece"], sources)


def measure_feed(folder: Path, backend: Tokenizer, sources: Sequence[Source]) -> list[dict[str, Any]]:
    """Token shards of the embedded world -> DICT-MLM rows, against the tokenizer on generated text."""
    config = load_recipe("tiny/dict-mlm-50", [f"output={folder}", "train.global_batch_rows=512"]).config
    preparation._run_tasks = lambda tasks, work=prepare_part: [work(task) for task in tasks]  # in this process
    transform = Transform(preparation.prepare(config), config)
    lines = [line for part in generate(sources, 1_000_000, 0.01, 7) for line in part]
    begun = {"round": 0}

    def raw() -> int:
        return sum(len(one.ids) for one in backend.encode_batch_fast(lines, add_special_tokens=False))

    def feed() -> int:
        begun["round"] += 1  # rows that were not asked for before
        columns = transform(Request(begun["round"], begun["round"] * 16, begun["round"] * 16 + 16, 0, 512))
        return int((columns["example_ids"] > 0).sum())

    speeds = interleave({"raw": raw, "feed": feed})
    how = "shards of the embedded world -> DICT-MLM rows, tokens per CPU second / encode_batch_fast of WordPiece"
    return [
        record("data/feed_ratio", speeds["feed"] / speeds["raw"], 3.0, how),
        record("data/raw_tokens_per_s", speeds["raw"], None, "encode_batch_fast of WordPiece, one core"),
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


def write_demo_text(folder: Path) -> list[Path]:
    """The embedded world as plain text, a file a language."""
    write_demo(folder / "world")
    files = []
    for path in sorted((folder / "world" / "wiki").glob("*.jsonl")):
        texts = [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]
        files.append(folder / f"{path.stem}.txt")
        files[-1].write_text("\n".join(texts) + "\n", encoding="utf-8")
    return files


if __name__ == "__main__":
    main(float(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("XALIGN_BENCH_MB", "100")))
