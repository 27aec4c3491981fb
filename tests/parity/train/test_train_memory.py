"""The memory that `xalign plan` says is what a real training step takes: three encoders, each run in another way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.unit.rules.tree import ROOT
from xalign_ray.config.load import load_recipe
from xalign_ray.needs.memory import memory_of
from xalign_ray.needs.subject import subject_of

LENGTH = 128
SMALL = {"num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512}
WIDE = {"num_hidden_layers": 2, "hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1024}
DEEP = {"num_hidden_layers": 8, "hidden_size": 192, "num_attention_heads": 6, "intermediate_size": 288}
WAYS = {
    "activations, dropout, bf16, ZeRO 1": (8_000, {**SMALL, "family": "xlm-r"}, 1, 1, {"bf16": True}),
    "a large table, fp32, ZeRO 2, two micro-steps": (40_000, {**WIDE, "hidden_dropout_prob": 0.0}, 2, 2, {}),
    "gradient checkpointing, autocast, ZeRO 0": (
        *(20_000, {**DEEP, "family": "modernbert", "hidden_dropout_prob": 0.0}, 0, 1),
        {"bf16": True, "gradient_checkpointing": True},
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_planned_memory_is_within_15_percent_of_the_measured(way: str, tmp_path: Path) -> None:
    vocab_size, model, stage, micro_steps, train = WAYS[way]
    rows = 8 * micro_steps
    tree = {
        "data": {
            "corpora": [{"format": "text", "language": "en", "paths": ["x"]}],
            "tokenizer": {"kind": "bpe", "vocab_size": vocab_size},
            "max_seq_length": LENGTH,
        },
        "model": model,
        "train": {"max_steps": 3, "global_batch_size": rows, "per_device_batch_size": 8, "eval_steps": 0, **train},
        "parallel": {"zero_stage": stage},
    }
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(tree))
    command = [sys.executable, "-m", "tests.parity.train.peak_memory", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    recipe = load_recipe(str(file))
    subject = subject_of(recipe)
    assert not isinstance(subject, str)
    planned = memory_of(recipe.config, subject, on_gpu=False)
    assert sum(planned.values()) == pytest.approx(float(done.stdout.splitlines()[-1]), rel=0.15), planned
