"""Two GPUs of one machine against one: `python tests/gpu/two.py OUT [--device cpu] [--tiny]`, a process for each GPU.

BERT-base's sizes in bf16, dropout 0.1, 32,768 tokens a GPU and step, by ZeRO stage: tokens a second, how much of two
single GPUs that is, and the profile of a step, which says how long it communicates. OUT/two.md is written after each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

ARMS = Path(__file__).parents[1] / "bench" / "step_arms.py"
LIMIT_S = 120  # a measurement, imports included


def measurements(tiny: bool) -> list[dict[str, Any]]:
    """What is measured, in order: one GPU, two by stage, a profile, gradients summed over four micro-steps."""
    base = {"name": "ours", "vocab": 119_547, "row": 512, "rows": 64, "width": 768, "depth": 12, "heads": 12}
    base |= {"steps": 16, "train": {"torch_compile": True}}
    if tiny:
        base |= {"vocab": 1000, "row": 32, "rows": 4, "width": 64, "depth": 2, "heads": 2, "steps": 8, "train": {}}
    often = {"train": base["train"] | {"per_device_batch_size": base["rows"] // 4}}
    ways: list[dict[str, Any]] = [{"stage": 1}, {"stage": 2}, {"stage": 0}, {"stage": 1, "profile": 4}]
    two = [way | {"workers": 2} for way in [*ways, {"stage": 1} | often]]
    return [base | way for way in [{"stage": 1, "workers": 1}, *two, {"stage": 1, "workers": 1} | often]]


def measure(arm: dict[str, Any], device: str) -> dict[str, Any]:
    """The arm with its tokens a second, or why there are none."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    launch.append(f"--nproc-per-node={arm['workers']}")
    given = json.dumps(arm | {"device": device, "bf16": True})
    try:
        done = subprocess.run([*launch, str(ARMS), given], capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return arm | {"failed": f"no end after {LIMIT_S} s"}
    answers = [line for line in done.stdout.splitlines() if line.startswith('{"found"')]
    if done.returncode or not answers:
        sys.stderr.write(done.stderr)
        return arm | {"failed": f"exit {done.returncode}"}
    found = json.loads(answers[0])
    return arm | found | {"tokens_per_s": arm["workers"] * arm["rows"] * arm["row"] / found["median"]}


def table(machine: str, found: list[dict[str, Any]]) -> str:
    """The measurements as Markdown; of two GPUs what part they are of twice the first one."""
    lines = [f"# {machine}, torch {torch.__version__}, bf16", ""]
    lines += ["| GPUs | ZeRO | settings | ms a step | tokens/s | of as many single ones |", "| --- " * 6 + "|"]
    one = found[0].get("tokens_per_s")
    for arm in found:
        at = f"| {arm['workers']} | {arm['stage']} | {arm['train'] or ''}{', profiled' * ('profile' in arm)} |"
        if "failed" in arm:
            lines.append(f"{at} {arm['failed']} | | |")
            continue
        part = f"{arm['tokens_per_s'] / arm['workers'] / one:.2f}" if one else ""
        lines.append(f"{at} {arm['median'] * 1e3:.1f} | {arm['tokens_per_s']:,.0f} | {part} |")
    profiles = [f"\n```\n{arm['profile']}\n```" for arm in found if isinstance(arm.get("profile"), str)]
    return "\n".join([*lines, *profiles]) + "\n"


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
    for arm in measurements(asked.tiny):
        found.append(measure(arm, asked.device))
        (asked.out / "two.md").write_text(table(machine, found))
    sys.stdout.write(table(machine, found))
    if any("failed" in arm for arm in found):
        raise SystemExit("Some measurements failed.")


if __name__ == "__main__":
    main()
