"""The time that a plan says is what a real step takes: one encoder gives the rate, and two others are planned with it.

CPU time of the fastest steps, so that a busy machine does not change it: see `step_time.py`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.unit.rules.tree import ROOT
from xalign_ray.config.load import Recipe, load_recipe
from xalign_ray.needs.estimate import Estimate, estimate
from xalign_ray.needs.rate import Rate
from xalign_ray.needs.shape import read_shape
from xalign_ray.needs.subject import subject_of
from xalign_ray.needs.work import operations_of_row

ROWS, STEPS = 8, 6
MEASURED = {"num_hidden_layers": 4, "hidden_size": 192, "num_attention_heads": 6, "intermediate_size": 768}
PLANNED = {
    "a large vocabulary on few layers": (
        *(24_000, 128),
        {"num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 8, "intermediate_size": 1024},
    ),
    "long rows, gated layers with windows": (
        *(4_000, 256),
        {"num_hidden_layers": 6, "hidden_size": 192, "num_attention_heads": 6, "intermediate_size": 384},
    ),
}


def write_recipe(file: Path, vocab_size: int, length: int, model: dict[str, object]) -> Recipe:
    tree = {
        "data": {
            "corpora": [{"format": "text", "language": "en", "paths": ["x"]}],
            "tokenizer": {"kind": "bpe", "vocab_size": vocab_size},
            "max_seq_length": length,
        },
        "model": {"hidden_dropout_prob": 0.0, **model},
        "train": {"max_steps": STEPS, "global_batch_size": ROWS, "per_device_batch_size": ROWS, "eval_steps": 0},
        "parallel": {"zero_stage": 0},
    }
    file.write_text(yaml.safe_dump(tree))
    return load_recipe(str(file))


def test_the_planned_time_is_within_25_percent_of_the_measured(tmp_path: Path) -> None:
    (large, long) = PLANNED.values()
    recipes = [
        write_recipe(tmp_path / "measured.yaml", 8_000, 128, MEASURED),
        write_recipe(tmp_path / "large.yaml", *large),
        write_recipe(tmp_path / "long.yaml", long[0], long[1], {**long[2], "family": "modernbert"}),
    ]
    files = [str(tmp_path / f"{name}.yaml") for name in ("measured", "large", "long")]
    command = [sys.executable, "-m", "tests.parity.train.step_time", *files]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    measured = [float(one) for one in done.stdout.splitlines()[-1].split()]
    subjects = [subject_of(recipe) for recipe in recipes]
    planned = []
    for recipe, subject in zip(recipes, subjects, strict=True):
        assert not isinstance(subject, str)
        rate = ROWS * operations_of_row(recipes[0].config, subjects[0]) / measured[0] / 1e12  # type: ignore[arg-type]
        found = estimate(recipe.config, subject, read_shape("1xCPU"), Rate(rate, "measured"), {})
        assert isinstance(found, Estimate)
        planned.append(found.step_s)
    assert planned == pytest.approx(measured, rel=0.25)
