"""How fast one GPU trains: `python tests/gpu/bench.py OUT [--seconds 480] [--device cpu] [--tiny]`, and the Trainer.

Each model size, vocabulary and length in bf16, dropout 0.1: tokens a second, MFU and peak memory of every method, and
transformers' Trainer (BertForMaskedLM, sdpa, fused AdamW) on the same rows, interleaved, each library in one process.
OUT/gpu.json and OUT/gpu.md are written after each measurement, the most telling first; what gpu.json holds already is
not measured again, and after these seconds no measurement begins.
"""

from __future__ import annotations

import argparse
import itertools
import json
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

ARMS = Path(__file__).parents[1] / "bench" / "step_arms.py"
SIZES = {"base": {"width": 768, "depth": 12, "heads": 12}, "large": {"width": 1024, "depth": 24, "heads": 16}}
METHODS = ("mlm", "dict-mlm", "align-mlm", "weam", "ppa")
MBERT, BERT, XLM_R = 119_547, 30_522, 250_002  # vocabularies as their recipes have them
MODERNBERT = {"family": "modernbert", "num_hidden_layers": 22, "intermediate_size": 1152, "hidden_dropout_prob": 0.0}
TOKENS = 32_768  # of a micro-batch of the base model; of the large one half
LIMIT_S = 120  # a measurement


def measurements(tiny: bool) -> list[dict[str, Any]]:
    """What is measured, in order: a profile, mlm and the Trainer, other methods, variants, other sizes."""
    if tiny:
        small = {"width": 64, "depth": 2, "heads": 2, "vocab": 1000, "row": 32, "rows": 4, "size": "tiny", "steps": 8}
        found = [small | {"name": "trainer"}, *(small | {"name": "ours", "method": method} for method in METHODS)]
        ways = [{"gradient_checkpointing": True}, {"torch_compile": True}]
        found += [small | {"name": "ours", "stage": stage, "train": way} for stage, way in enumerate(ways)]
        return [*found, small | {"name": "ours", "model": MODERNBERT}, small | {"name": "ours", "profile": 2}]

    def arm(name: str, row: int, vocab: int, size: str = "base", **more: Any) -> dict[str, Any]:
        rows = more.pop("rows", TOKENS // row // (2 if size == "large" else 1))
        return {**SIZES[size], "size": size, "row": row, "vocab": vocab, "rows": rows, "steps": 16, "name": name} | more

    def ours(row: int, vocab: int, size: str = "base", compiled: bool = True, **more: Any) -> dict[str, Any]:
        return arm("ours", row, vocab, size, train={"torch_compile": compiled}, **{"stage": 1} | more)

    found = [ours(512, MBERT, compiled=False, profile=4), ours(512, MBERT, profile=4), arm("trainer", 512, MBERT)]
    found += [ours(512, MBERT, stage=0), ours(512, MBERT, model={"attention_probs_dropout_prob": 0.0})]
    found += [ours(128, MBERT), arm("trainer", 128, MBERT), ours(128, MBERT, method="ppa", profile=4)]
    found += [ours(128, MBERT, method=method) for method in METHODS[1:-1]]
    found += [ours(512, MBERT, "large"), arm("trainer", 512, MBERT, "large"), ours(512, 50_368, model=MODERNBERT)]
    found += [ours(512, MBERT, stage=2), ours(512, MBERT), arm("plain", 512, MBERT)]
    sizes = [(size, row, vocab) for vocab in (BERT, XLM_R) for size, row in itertools.product(SIZES, (512, 128))]
    of_sizes = [("large", 128, MBERT), *sizes]
    return found + [
        one for size, row, vocab in of_sizes for one in (ours(row, vocab, size), arm("trainer", row, vocab, size))
    ]


class Library:
    """A process that measures arms one after another, so that its imports cost their seconds once."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def measure(self, arm: dict[str, Any]) -> dict[str, Any]:
        """What the arm measured, or why there is nothing."""
        if self._process is None or self._process.poll() is not None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self._process = subprocess.Popen([sys.executable, str(ARMS), "-"], **pipes)
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(arm) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], LIMIT_S)[0]:
            self._process.kill()
            self._process.wait()
            return {"failed": f"no end after {LIMIT_S} s"}
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"failed": f"its process ended with {self._process.wait()}"}


def measure(one: dict[str, Any], device: str, library: Library) -> dict[str, Any]:
    """The measurement with what came of it: median seconds of a step, tokens a second, or why there is nothing."""
    found = library.measure(
        {key: value for key, value in one.items() if key != "size"} | {"device": device, "bf16": True}
    )
    if "failed" in found:
        return one | found
    tokens = one["rows"] * one["row"] / found["median"]
    return one | {"step_s": found["median"], "tokens_per_s": tokens} | {k: v for k, v in found.items() if k != "found"}


def table(machine: str, found: list[dict[str, Any]]) -> str:
    """The measurements as Markdown; a ratio is to the Trainer on the same rows."""
    same = ("size", "row", "vocab", "rows")
    peers = {tuple(o[k] for k in same): o["tokens_per_s"] for o in found if o["name"] == "trainer" and "step_s" in o}
    lines = [
        f"# {machine}, torch {torch.__version__}, bf16",
        "",
        "| model | length | V | rows | what | ms a step | tokens/s | of the Trainer | MFU | GPU memory |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in found:
        what = one["name"] if one["name"] != "ours" else one.get("method", "mlm")
        what += "".join(f", {key}: {one[key]}" for key in ("train", "stage", "model") if one.get(key))
        what += ", profiled" if one.get("profile") else ""
        at = [one["size"], one["row"], f"{one['vocab']:,}", one["rows"], what]
        if "failed" in one:
            lines.append("| " + " | ".join(map(str, [*at, one["failed"], "", "", "", ""])) + " |")
            continue
        peer = peers.get(tuple(one[key] for key in same))
        lines.append(
            "| " + " | ".join(map(str, [
                *at, f"{one['step_s'] * 1e3:.1f}", f"{one['tokens_per_s']:,.0f}",
                f"{one['tokens_per_s'] / peer:.2f}" if peer else "",
                f"{one['train/mfu']:.1%}" if "train/mfu" in one else "",
                f"{one['gpu_peak_mb'] / 1e3:.1f} GB" if "gpu_peak_mb" in one else "",
            ])) + " |"
        )  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measures one after the other and writes what there is after each."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("out", type=Path)
    given.add_argument("--seconds", type=float, default=1800)
    given.add_argument("--device", default="cuda")
    given.add_argument("--tiny", action="store_true", help="a rehearsal: the same way with models of no size")
    asked = given.parse_args()
    ends = time.monotonic() + asked.seconds
    machine = torch.cuda.get_device_name() if asked.device == "cuda" else "CPU, a rehearsal"
    asked.out.mkdir(parents=True, exist_ok=True)
    file = asked.out / "gpu.json"
    found: list[dict[str, Any]] = json.loads(file.read_text())["measured"] if file.exists() else []
    ours = Library()
    libraries = {"ours": ours, "plain": ours, "trainer": Library()}
    for one in measurements(asked.tiny):
        name = json.dumps(one, sort_keys=True)
        if any(done["arm"] == name and "step_s" in done for done in found):
            continue
        if time.monotonic() > ends:
            break
        found.append(measure(one, asked.device, libraries[one["name"]]) | {"arm": name})
        sys.stdout.write(f"{found[-1].get('profile', '')}\n")
        file.write_text(json.dumps({"machine": machine, "measured": found}, indent=1) + "\n")
        (asked.out / "gpu.md").write_text(table(machine, found))
        sys.stdout.write(
            json.dumps({key: value for key, value in found[-1].items() if key not in ("arm", "profile")}) + "\n"
        )
        sys.stdout.flush()
    if any("failed" in one for one in found) and asked.tiny:
        raise SystemExit("Some measurements of the rehearsal failed.")


if __name__ == "__main__":
    main()
