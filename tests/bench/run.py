"""Measures speed as ratios against peers in the same run: interleaved rounds, one core, medians; writes bench.json.

`python tests/bench/run.py [MEGABYTES] [TOPIC...]`: text of each measured setting, 100 by default; XALIGN_BENCH_MB says
the same. Topics are the names of TOPICS, all by default; bench.json keeps what it holds of others.
Text is generated from the real pack (XALIGN_REAL_TEXT, a folder of LANGUAGE.txt; XALIGN_REAL_DICTIONARIES, of MUSE's
en-LANGUAGE.txt, if these do not lie in its sibling dictionaries/muse); where that is missing from the embedded world,
whose small vocabulary flatters what profits from repeated words: quote no figure of it. Streaming, objectives, step,
pretraining and start are wall time: they need a machine with nothing else on it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
sys.path.insert(0, str(Path(__file__).parents[2]))

import ray
from corpus import Material
from rich.console import Console
from rich.padding import Padding

OUT = Path("bench.json")


# Each is a file here with a function `measure` that returns records; those of the first kind are given the text.
OF_TEXT = ("prepare", "whole", "streaming", "scale_prepare", "pretraining")
TOPICS = (
    *OF_TEXT,
    "word_alignment",
    "objectives",
    "continuing",
    "step",
    "fine_tuning",
    "scale",
    "plan_time",
    "start",
)
PEERS = {
    "whole": "datasets",
    "pretraining": "datasets",
    "continuing": "sentence_transformers",
    "word_alignment": "eflomal",
}  # packages that nothing else here needs


def main(arguments: Sequence[str]) -> None:
    """Measures the topics asked for; prints the table, and writes bench.json into the current folder."""
    numbers = [word for word in arguments if word not in TOPICS]
    asked = [word for word in arguments if word in TOPICS] or list(TOPICS)
    megabytes = float(numbers[0] if numbers else os.environ.get("XALIGN_BENCH_MB", "100"))
    if missing := [PEERS[t] for t in asked if t in PEERS and not importlib.util.find_spec(PEERS[t])]:
        raise SystemExit(f"To compare with, install {' and '.join(missing)}: pip install {' '.join(missing)}")
    with tempfile.TemporaryDirectory() as folder:
        material = Material.find(Path(folder), megabytes)
        for topic in asked:
            began = time.perf_counter()
            measure = importlib.import_module(topic).measure
            found = measure(material) if topic in OF_TEXT else measure()
            records = [one | {"topic": topic} for one in found]
            ray.shutdown()  # what a topic has started, the next one must not find
            _write(topic, records)
            _show(records, f"{topic}: {time.perf_counter() - began:.0f} s, load {os.getloadavg()[0]:.1f}")


def _write(topic: str, records: list[dict[str, Any]]) -> None:
    known = json.loads(OUT.read_text(encoding="utf-8")) if OUT.is_file() else []
    merged = [one for one in known if one.get("topic") in TOPICS and one["topic"] != topic] + records
    OUT.write_text(json.dumps(merged, indent=1) + "\n", encoding="utf-8")


def _show(records: list[dict[str, Any]], title: str) -> None:
    console = Console(highlight=False)
    console.rule(title)
    for one in records:
        target = "" if one["target"] is None else f"  target {one['target']:g}, {one['better']} is better"
        console.print(f"[bold]{one['name']}  {one['value']:.4g}[/bold]{target}")
        console.print(Padding(one["how"], (0, 0, 0, 4)), style="dim")


if __name__ == "__main__":
    main(sys.argv[1:])
