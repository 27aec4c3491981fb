"""Two processes on one folder, again and again: `prepare` beside `prepare`, `pretrain` beside `pretrain`.

    python tests/bench/two_writers.py --times 20 --under-ray 2

For each kind it prints how often what happened: exit codes, tracebacks, and a hash of the files or the steps to compare
with those of one process alone. Prepares work on a cluster that is started once; pretrains without Ray, and
`--under-ray` times on that cluster.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import ray

from xalign_ray.config.schema import ParallelConfig
from xalign_ray.demo.writer import write_demo
from xalign_ray.track.events import EVENT_LOG, read_events
from xalign_ray.train.driver import connect

STEPS = 6
SETTINGS = [
    "data.tokenizer.vocab_size=600",
    "model.hidden_size=32",
    "model.intermediate_size=64",
    "model.num_hidden_layers=1",
]
SETTINGS += [
    f"train.max_steps={STEPS}",
    "train.global_batch_size=8",
    "train.per_device_batch_size=8",
    "parallel.workers=1",
]
SETTINGS += ["train.eval_steps=0", "checkpoint.save_steps=2", 'track.mlflow="off"']
PATIENCE_S = 600


def command(folder: Path, verb: str, output: Path, *more: str) -> list[str]:
    settings = [f"data.root={folder / 'demo'}", f"output={output}", *SETTINGS]
    chosen = [word for setting in settings for word in ("--set", setting)]
    return [sys.executable, "-m", "xalign_ray", verb, "tiny/align-mlm", *chosen, *more]


def run_at_once(given: list[str], environment: dict[str, str], count: int = 2) -> list[tuple[int, str]]:
    """Exit code and stderr of processes that were started together."""
    pipe = subprocess.PIPE
    both = [subprocess.Popen(given, stdout=pipe, stderr=pipe, text=True, env=environment) for _ in range(count)]
    said = [one.communicate(timeout=PATIENCE_S)[1] for one in both]
    return [(one.returncode, text) for one, text in zip(both, said, strict=True)]


def digest(folder: Path) -> str:
    """Of all that a prepared folder holds: names and bytes."""
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            whole.update(f"{path.relative_to(folder)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()[:12]


def steps(run: Path) -> str:
    """Of the rows and the loss of every step along the surviving lineage."""
    found = [event for event in read_events(run / EVENT_LOG) if event["event"] == "step"]
    assert [event["step"] for event in found] == list(range(1, STEPS + 1)), run
    seen = [(event["batch_hash"], event["metrics"]["train/loss"]) for event in found]
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:12]


def outcome(ended: list[tuple[int, str]]) -> str:
    codes = " and ".join(map(str, sorted(code for code, _ in ended)))
    tracebacks = sum(text.count("Traceback") for _, text in ended)
    told = sum("is being written by" in text for _, text in ended)
    if tracebacks or all(code for code, _ in ended):
        sys.stderr.write("\n".join(text for _, text in ended))
    return f"exits {codes}, {tracebacks} tracebacks, {told} told of the other"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--under-ray", type=int, default=2)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="two-writers-"))
    alone = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"} | {"OMP_NUM_THREADS": "1"}
    try:
        write_demo(folder / "demo", sentences=200, parallel_sentences=50, retrieval_pairs=10)
        connect(ParallelConfig(workers=1), cpus=4)
        tokens = {key: value for key, value in os.environ.items() if key.startswith("RAY_AUTH")}
        joined = alone | {"RAY_AUTH_MODE": "token"} | tokens | {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}
        found: Counter[str] = Counter()

        def try_once(kind: str, ended: list[tuple[int, str]], result: Callable[[], str]) -> None:
            told = outcome(ended)
            line = f"{kind}: {told}, result {result()}"
            found[line] += 1
            sys.stderr.write(f"{line}\n")

        def prepared(output: Path) -> str:
            (made,) = (path.parent for path in (output / "data").glob("*/manifest.json"))
            return digest(made)

        shards = folder / "shards"
        for number in range(given.times + 1):
            output = folder / f"prepare-{number}" if number else shards
            ended = run_at_once(command(folder, "prepare", output), joined, 2 if number else 1)
            try_once("prepare" if number else "prepare alone", ended, partial(prepared, output))
            if number:
                shutil.rmtree(output)
        for number in range(given.times + 1):
            out = folder / "run"
            words = command(folder, "pretrain", shards, "--no-ray", "--out", str(out))
            try_once(
                "pretrain --no-ray" if number else "pretrain alone",
                run_at_once(words, alone, 2 if number else 1),
                partial(steps, out),
            )
            shutil.rmtree(out)
        for _ in range(given.under_ray):
            out = folder / "run"
            words = command(folder, "pretrain", shards, "--out", str(out))
            try_once("pretrain under Ray", run_at_once(words, joined), partial(steps, out))
            shutil.rmtree(out)
        sys.stdout.write("".join(f"{count:3} x {line}\n" for line, count in found.items()))
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
