"""Measures our word aligner against eflomal: pairs per CPU second and error rate on the same pairs in the same run.

`python tests/bench/word_alignment.py speed` is a ratio: trained on and applied to the 7,000 OpenNMT pairs
and the 100 German-English gold pairs. `... word_alignment.py table` prints error rates on all gold sets, as Markdown.
Data: $XALIGN_DATA, or ../shared/data beside the repository. The peer is a program of another licence that nothing else
here needs: `pip install eflomal`.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

from rich.console import Console

from tests.alignment_error_rate import Gold, compare, read_gold
from xalign_ray.align.chain_aligner import Chains
from xalign_ray.align.links import (
    GROW_DIAG_FINAL_AND,
    SYMMETRISERS,
    Link,
    WordPair,
    read_pharaoh,
)

DATA = Path(os.environ.get("XALIGN_DATA", Path(__file__).parents[3] / "shared" / "data"))
ROUNDS = 3
PUBLISHED = {  # After awesome-align's README: trained on far more pairs, and on another de-en gold
    "fast_align": {"de-en": 0.270, "en-fr": 0.105, "zh-en": 0.381},
    "eflomal": {"de-en": 0.226, "en-fr": 0.082, "zh-en": 0.287},
    "mBERT softmax": {"de-en": 0.174, "en-fr": 0.056, "zh-en": 0.181},
}

Outcome = tuple[float, dict[str, list[set[Link]]]]  # CPU seconds, links of all pairs by method


@dataclass(frozen=True)
class TestSet:
    """Gold pairs, and what an aligner is trained on besides them."""

    name: str
    trained_on: str
    pairs: list[WordPair]  # gold first
    gold: list[Gold]


def de_en(training: bool) -> TestSet:
    """Bicici's 100 Europarl pairs, German first, all links sure."""
    folder = DATA / "word_alignment" / "bicici_de-en"
    pairs = join(read_words(folder / "test.de"), read_words(folder / "test.en"))
    gold = read_gold(folder / "de-en.wa", first_word=0)
    extra = DATA / "parallel" / "opennmt_en-de"
    more = join(read_words(extra / "train.tok.de"), read_words(extra / "train.tok.en")) if training else []
    trained_on = f"{len(more):,} OpenNMT + 100 gold pairs" if training else "100 gold pairs"
    return TestSet("de-en", trained_on, pairs + more, gold)


def awesome(name: str, title: str, more: Sequence[WordPair] = (), what: str = "") -> TestSet:
    """A gold set of awesome-align's examples; its links count from 1."""
    folder = DATA / "word_alignment" / "awesome_align"
    lines = (folder / f"{name}.src-tgt").read_text(encoding="utf-8").lower().splitlines()
    pairs = [(a.split(), b.split()) for a, _, b in (line.partition("|||") for line in lines)]
    return TestSet(title, f"{what}{len(pairs)} gold pairs", [*pairs, *more], read_gold(folder / f"{name}.gold", 1))


def read_words(path: Path) -> list[list[str]]:
    """The lower-cased words of each line."""
    return [line.split() for line in path.read_text(encoding="utf-8-sig").lower().split("\n")[:-1]]


def join(first: Sequence[list[str]], second: Sequence[list[str]]) -> list[WordPair]:
    """Pairs of which no side is empty."""
    return [(a, b) for a, b in zip(first, second, strict=True) if a and b]


def run_ours(pairs: Sequence[WordPair], methods: Sequence[str]) -> Outcome:
    """Trains on the pairs and aligns them."""
    began, outcome = cpu_seconds(), {}
    with tempfile.TemporaryDirectory() as folder:
        Chains().train(pairs, Path(folder))
        aligner = Chains().open(Path(folder))
        for method in methods:
            outcome[method] = [set(links) for links in aligner.align(pairs, method)]
    return cpu_seconds() - began, outcome


def run_eflomal(pairs: Sequence[WordPair], methods: Sequence[str]) -> Outcome:
    """Trains eflomal on the pairs, both directions as its README says, and symmetrises by our functions.

    The time of symmetrising is ours, so it is left out of the peer's.
    """
    program = Path(sysconfig.get_path("scripts")) / "eflomal-align"
    if not program.is_file():
        raise SystemExit(f"{program} is missing: pip install eflomal, to have the peer of this measurement.")
    with tempfile.TemporaryDirectory() as folder:
        text, forward, backward = (Path(folder) / name for name in ("text", "forward", "backward"))
        text.write_text("".join(f"{' '.join(a)} ||| {' '.join(b)}\n" for a, b in pairs), encoding="utf-8")
        began = cpu_seconds()
        command = [program, "-i", text, "-f", forward, "-r", backward, "--overwrite", "-m", "3"]
        subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=550)
        spent = cpu_seconds() - began
        found = [
            [set(read_pharaoh(line)) for line in path.read_text().split("\n")[:-1]] for path in (forward, backward)
        ]
    return spent, {m: [SYMMETRISERS[m](a, b) for a, b in zip(*found, strict=True)] for m in methods}


def cpu_seconds() -> float:
    """Of this process, its threads and the processes it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def error_rate(outcome: Outcome, method: str, test: TestSet) -> float:
    """Of the gold pairs, which are the first."""
    return compare(outcome[1][method][: len(test.gold)], test.gold).error_rate


def measure() -> list[dict[str, Any]]:
    """The records of the bench: rounds interleaved, medians; both write one Pharaoh file a direction or in all."""
    test, method = de_en(training=True), GROW_DIAG_FINAL_AND
    arms: dict[str, Callable[[], Outcome]] = {
        "hmm": lambda: run_ours(test.pairs, [method]),
        "eflomal": lambda: run_eflomal(test.pairs, [method]),
    }
    runs: dict[str, list[Outcome]] = {name: [] for name in arms}
    for _ in range(ROUNDS):
        for name, arm in arms.items():
            runs[name].append(arm())
    speed = {name: len(test.pairs) / statistics.median(run[0] for run in done) for name, done in runs.items()}
    rate = {name: statistics.median(error_rate(run, method, test) for run in done) for name, done in runs.items()}
    how = f"{len(test.pairs):,} pairs, training and aligning, {method}, median of {ROUNDS} interleaved rounds"
    return [
        record("word_alignment/speed_ratio", speed["hmm"] / speed["eflomal"], 1.0, "higher",
               f"pairs per CPU second of 'hmm' against eflomal, {how}"),
        record("word_alignment/error_rate_difference", rate["hmm"] - rate["eflomal"], 0.01, "lower",
               f"AER of 'hmm' less eflomal's, 100 German-English gold pairs, {how}"),
        *(record(f"word_alignment/{name}_pairs_per_cpu_s", one, None, "higher", how) for name, one in speed.items()),
        *(record(f"word_alignment/{name}_error_rate", one, None, "lower", how) for name, one in rate.items()),
    ]  # fmt: skip


def record(name: str, value: float, target: float | None, better: str, how: str) -> dict[str, Any]:
    """One record of bench.json; a target of None is a figure to report."""
    return {"name": name, "value": value, "target": target, "better": better, "how": how}


def table() -> list[str]:
    """Error rates of each aligner and method on each gold set, beside the published ones."""
    multi30k = DATA / "parallel" / "multi30k"
    captions = join(read_words(multi30k / "train5k.en"), read_words(multi30k / "train5k.fr"))
    tests = [
        de_en(training=True),
        de_en(training=False),
        awesome("enfr", "en-fr"),
        awesome("enfr", "en-fr", captions, "5,000 Multi30k + "),
        awesome("zhen", "zh-en"),
    ]
    lines = [
        "| gold | trained on | aligner | " + " | ".join(SYMMETRISERS) + " |",
        "|---" * (3 + len(SYMMETRISERS)) + "|",
    ]
    for test in tests:
        rows = {
            "hmm": run_ours(test.pairs, list(SYMMETRISERS)),
            "eflomal": run_eflomal(test.pairs, list(SYMMETRISERS)),
        }
        for name, outcome in rows.items():
            cells = [f"{error_rate(outcome, m, test):.3f}" if m in outcome[1] else "-" for m in SYMMETRISERS]
            lines.append(f"| {test.name} | {test.trained_on} | {name} | " + " | ".join(cells) + " |")
    lines += ["", "| published | " + " | ".join(PUBLISHED["eflomal"]) + " |", "|---|---|---|---|"]
    lines += [
        f"| {name} | " + " | ".join(f"{rate:.3f}" for rate in row.values()) + " |" for name, row in PUBLISHED.items()
    ]
    for name in ("enfr", "zhen"):
        test = awesome(name, name)
        found = (DATA / "word_alignment" / "awesome_align" / f"{name}.awesome-align.out").read_text().split("\n")[:-1]
        rate = compare([read_pharaoh(line) for line in found], test.gold).error_rate
        lines.append(f"\nawesome-align's own output for {name}, by our error rate: {rate:.4f}")
    return lines


def main(what: str) -> None:
    """Writes bench.word_alignment.json, or prints the table."""
    if what == "table":
        sys.stdout.write("\n".join(table()) + "\n")
        return
    records = measure()
    Path("bench.word_alignment.json").write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    for one in records:
        target = "report" if one["target"] is None else f"{one['target']:g}"
        Console().print(
            f"{one['name']}  {one['value']:.3f}  (target {target}, {one['better']} is better)  {one['how']}"
        )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "speed")
