"""Prepares generated corpora of growing size on local Ray, and says time, throughput and the peak memory of a worker.

`python tests/bench/large.py FOLDER [GIGABYTES ...]`: 0.5, 1 and 2 by default; FOLDER holds the corpora and the shards,
five times the largest, and is left to look at. Text is made of the real pack as in `run.py` (XALIGN_REAL_TEXT).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import ray
import yaml
from generated import REAL, Source, read_sources

from xalign_ray.config.load import load_recipe
from xalign_ray.data.prepare import prepare

INVENTED = (
    0.01  # share of words that were never written before: new pretokens come at about the rate of run.py's target
)
STRETCH = 4_000_000  # characters made at a time


def main(folder: Path, sizes: Sequence[float]) -> None:
    """Prints a line a size."""
    sources = read_sources(sorted(REAL.glob("*.txt")))
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    for gigabytes in sizes:
        corpus = folder / f"{gigabytes:g}"
        paths = {source.language: _write(source, corpus, gigabytes / len(sources)) for source in sources}
        written = sum(path.stat().st_size for path in paths.values())
        config = load_recipe(str(_recipe(corpus, paths))).config
        with Watch() as watch:
            began = time.monotonic()
            prepared = prepare(config)
            seconds = time.monotonic() - began
        tokens = sum(pool["tokens"] for pool in prepared.manifest["pools"].values())
        peaks = ", ".join(f"{peak:.0f}" for peak in sorted(watch.peaks.values(), reverse=True)[:4])
        sys.stdout.write(
            f"{written / 1e9:.2f} GB, {tokens / 1e6:,.0f} million tokens: {seconds:.0f} s, "
            f"{written / 1e6 / seconds:.1f} MB/s on two workers; peak resident MiB of the workers {peaks}; "
            f"load {os.getloadavg()[0]:.1f}\n"
        )
        sys.stdout.flush()


class Watch:
    """Peak resident memory of each of Ray's workers, in MiB, shared memory included, by process id."""

    def __init__(self) -> None:
        self.peaks: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            for status in Path("/proc").glob("[0-9]*/status"):
                try:
                    if not (status.parent / "cmdline").read_bytes().startswith(b"ray::"):
                        continue
                    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
                except OSError:
                    continue  # it ended meanwhile
                self.peaks[int(status.parent.name)] = int(fields["VmHWM"].split()[0]) / 1024


def _write(source: Source, folder: Path, gigabytes: float) -> Path:
    """A corpus of one language in paragraphs of some sentences, made anew wherever it is longer than what is there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{source.language}.txt"
    wanted = gigabytes * 1e9
    if path.is_file() and path.stat().st_size >= wanted:
        return path
    with path.open("w", encoding="utf-8") as file:
        for stretch in range(1_000_000):
            if file.tell() >= wanted:
                break
            lines = source.lines(STRETCH, INVENTED, np.random.default_rng([9, stretch]))
            file.write("\n".join(lines) + "\n")
    return path


def _recipe(folder: Path, paths: dict[str, Path]) -> Path:
    recipe = folder / "recipe.yaml"
    corpora = [{"format": "text", "language": code, "paths": [str(path)]} for code, path in paths.items()]
    data = {"root": "/", "corpora": corpora, "tokenizer": {"kind": "bpe", "vocab_size": 30000, "sample_mib": 2}}
    tree = {"output": str(folder / "out"), "data": data, "streams": [{"kind": "masked_text"}]}
    recipe.write_text(yaml.safe_dump(tree | {"train": {"max_steps": 1, "global_batch_size": 1}}))
    return recipe


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), [float(size) for size in sys.argv[2:]] or [0.5, 1, 2])
