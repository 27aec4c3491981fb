"""How fast one GPU trains: `python tests/gpu/bench.py OUT [--device cpu] [--tiny]`, against the Trainer, interleaved.

Each model size, vocabulary and length in bf16: tokens a second, MFU and peak memory of every method, and transformers'
Trainer (BertForMaskedLM, sdpa, fused AdamW) on the same rows. OUT/gpu.json and OUT/gpu.md are written after each
measurement, the most telling first, so that whatever ends it early loses nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

ARMS = Path(__file__).parents[1] / "bench" / "step_arms.py"
SIZES = {"base": {"width": 768, "depth": 12, "heads": 12}, "large": {"width": 1024, "depth": 24, "heads": 16}}
METHODS = ("mlm", "dict-mlm", "align-mlm", "weam", "ppa")
TOKENS = 32_768  # of a micro-batch of the base model; of the large one half
LIMIT_S = 150  # a measurement


def measurements(tiny: bool) -> list[dict[str, Any]]:
    """What is measured, in order: the Trainer beside mlm everywhere, then the other methods, then what might help."""
    if tiny:
        small = {"width": 64, "depth": 2, "heads": 2, "vocab": 1000, "row": 32, "rows": 4, "size": "tiny", "steps": 4}
        found = [small | {"name": "trainer"}, *(small | {"name": "ours", "method": method} for method in METHODS)]
        return [*found, small | {"name": "ours", "train": {"gradient_checkpointing": True}}]
    found = []
    for (size, sizes), row, vocab in itertools.product(SIZES.items(), (512, 128), (119_000, 30_000)):
        rows = TOKENS // row // (2 if size == "large" else 1)
        one = {**sizes, "size": size, "row": row, "vocab": vocab, "rows": rows, "steps": 20}
        found += [one | {"name": "ours", "method": "mlm"}, one | {"name": "trainer"}]
    base = {**SIZES["base"], "size": "base", "row": 128, "vocab": 119_000, "rows": TOKENS // 128, "steps": 20}
    found += [base | {"name": "ours", "method": method} for method in METHODS[1:]]
    long = base | {"name": "ours", "row": 512, "rows": TOKENS // 512, "steps": 40}
    found += [long | {"train": train} for train in ({"torch_compile": True}, {"attention": "dense"})]
    return [*found, long | {"stage": 2}, long | {"rows": 4 * TOKENS // 512}, long | {"name": "plain"}]


def measure(one: dict[str, Any], device: str) -> dict[str, Any]:
    """The measurement with what came of it: median seconds of a step, tokens a second, or why there is nothing."""
    arm = {key: value for key, value in one.items() if key != "size"} | {"device": device, "bf16": True}
    try:
        done = subprocess.run(
            [sys.executable, str(ARMS), json.dumps(arm)], capture_output=True, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return one | {"failed": f"no end after {LIMIT_S} s"}
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "Error" in line or "error" in line]
        return one | {"failed": " ".join(said[-2:]) or "it said nothing"}
    found = json.loads(done.stdout.splitlines()[-1])
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
        what += "".join(f", {key}: {one[key]}" for key in ("train", "stage") if one.get(key))
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
    given.add_argument("--device", default="cuda")
    given.add_argument("--tiny", action="store_true", help="a rehearsal: the same way with models of no size")
    asked = given.parse_args()
    machine = torch.cuda.get_device_name() if asked.device == "cuda" else "CPU, a rehearsal"
    asked.out.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    for one in measurements(asked.tiny):
        found.append(measure(one, asked.device))
        (asked.out / "gpu.json").write_text(json.dumps({"machine": machine, "measured": found}, indent=1) + "\n")
        (asked.out / "gpu.md").write_text(table(machine, found))
        sys.stdout.write(json.dumps(found[-1]) + "\n")
        sys.stdout.flush()
    if any("failed" in one for one in found) and asked.tiny:
        raise SystemExit("Some measurements of the rehearsal failed.")


if __name__ == "__main__":
    main()
