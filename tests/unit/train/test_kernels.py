"""What a step asks of a GPU, counted without one: few kernels and bytes, no wait of the host, gradients sent once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.kernel_bars import BYTES, GRAPHS

BENCH = Path(__file__).parents[2] / "bench" / "kernels.py"
LAMB = {"optimizer": {"kind": "lamb", "learning_rate": 1e-3}}
METHODS = ("mlm", "dict-mlm", "align-mlm", "align-layer", "weam", "ppa", "contrast")
CASES: dict[str, dict[str, Any]] = {
    **{method: {"method": method} for method in METHODS},
    "stage 0": {"stage": 0},
    "stage 2": {"stage": 2},
    "accumulation": {"accumulation": 4},
    "accumulation at stage 2": {"stage": 2, "accumulation": 4},
    "accumulation at stage 0": {"stage": 0, "accumulation": 4},
    "fp32": {"bf16": False, "train": {"attention": "dense"}},
    "lamb": {"train": LAMB},
    "lamb at stage 0": {"train": LAMB, "stage": 0},
    **{f"graphs of {name}": {"model": model, "layer": layer} for name, (model, layer, _) in GRAPHS.items()},
    **{
        f"bytes of {name}": {"method": method, "vocab": vocab, "row": row}
        for name, (method, vocab, row, _) in BYTES.items()
    },
}


@pytest.fixture(scope="module")
def counted() -> dict[str, dict[str, Any]]:
    """Counts of each case, from one process of its own: torch's fake process group stays for as long as it runs."""
    command = [sys.executable, str(BENCH), *map(json.dumps, CASES.values())]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"case"')]
    return dict(zip(CASES, map(json.loads, lines), strict=True))


def test_the_host_waits_for_nothing_but_the_aligned_labels_of_weam(counted: dict[str, dict[str, Any]]) -> None:
    reads = {name: found["reads"] for name, found in counted.items() if found.get("reads")}
    assert list(reads) == ["weam"]
    assert [(who.partition(":")[0], times) for who, times in reads["weam"].items()] == [("forward", 1)]


@pytest.mark.parametrize(
    ("name", "most"),
    [("mlm", 600), ("dict-mlm", 620), ("align-mlm", 660), ("weam", 665), ("contrast", 1_250), ("ppa", 1_100)],
)
def test_kernels_of_forward_and_backward(counted: dict[str, dict[str, Any]], name: str, most: int) -> None:
    assert counted[name]["learned"] <= most


@pytest.mark.parametrize("name", ["mlm", "stage 0", "stage 2", "accumulation", "fp32", "weam", "ppa"])
def test_twenty_kernels_reduce_clip_and_move_the_weights(counted: dict[str, dict[str, Any]], name: str) -> None:
    assert counted[name]["kernels"]["optimizer"] <= 20 + 4 * (name == "accumulation"), counted[name]["names"]


@pytest.mark.parametrize("name", ["lamb", "lamb at stage 0"])
def test_lamb_moves_all_weights_at_once(counted: dict[str, dict[str, Any]], name: str) -> None:
    assert counted[name]["kernels"]["optimizer"] <= 60, counted[name]["names"]


def test_one_flash_operation_a_layer_and_no_other_attention(counted: dict[str, dict[str, Any]]) -> None:
    names = counted["mlm"]["names"]
    assert names["forward: _flash_attention_forward"] == names["backward: _flash_attention_backward"] == 12
    assert not [name for name in names if "safe_softmax" in name or "bmm" in name]


@pytest.mark.parametrize(
    ("name", "bytes_"),
    [
        *((name, 2) for name in ("mlm", "stage 0", "stage 2", "ppa")),
        *((f"accumulation{at}", 2) for at in ("", " at stage 0", " at stage 2")),
        ("fp32", 4),
    ],
)
def test_gradients_cross_the_wire_once_a_step(counted: dict[str, dict[str, Any]], name: str, bytes_: int) -> None:
    assert counted[name]["sent"] == pytest.approx(bytes_, rel=0.02)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_kind_of_layer_is_one_graph_without_breaks(counted: dict[str, dict[str, Any]], name: str) -> None:
    found = counted[f"graphs of {name}"]
    assert (found["graphs"], found["breaks"]) == (GRAPHS[name][-1], 0)


@pytest.mark.parametrize("name", BYTES)
def test_a_pass_holds_few_bytes_a_token(counted: dict[str, dict[str, Any]], name: str) -> None:
    """At BERT-base's true sizes, in bf16 with dropout."""
    *_, most = BYTES[name]
    assert most / 2 < counted[f"bytes of {name}"]["most"] / 1000 < most


@pytest.mark.parametrize(("name", "most"), [("mlm", 10), ("accumulation", 40), ("ppa", 40), ("align-mlm", 20)])
def test_copies_from_the_host_are_a_batchs_columns(counted: dict[str, dict[str, Any]], name: str, most: int) -> None:
    copies = counted[name]["copies"]
    assert sum(copies.values()) <= most, copies
