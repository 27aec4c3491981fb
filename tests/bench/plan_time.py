"""The planned time of a step against the measured: one encoder gives the rate, two others are planned with it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from records import record

from xalign_ray.config.load import Recipe, load_recipe
from xalign_ray.planning.estimate import Estimate, Rate, estimate, operations_of_row, read_shape
from xalign_ray.planning.subject import subject_of

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


def measure() -> list[dict[str, Any]]:
    """How far the planned time of each is off."""
    (large, long) = PLANNED.values()
    with tempfile.TemporaryDirectory() as folder:
        recipes = [
            write_recipe(Path(folder) / "measured.yaml", 8_000, 128, MEASURED),
            write_recipe(Path(folder) / "large.yaml", *large),
            write_recipe(Path(folder) / "long.yaml", long[0], long[1], {**long[2], "family": "modernbert"}),
        ]
        files = [str(Path(folder) / f"{name}.yaml") for name in ("measured", "large", "long")]
        command = [sys.executable, "-m", "tests.bench.step_time", *files]
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True)
    measured = [float(one) for one in done.stdout.splitlines()[-1].split()]
    subjects = [subject for recipe in recipes if not isinstance(subject := subject_of(recipe), str)]
    rate = Rate(ROWS * operations_of_row(recipes[0].config, subjects[0]) / measured[0] / 1e12, "measured")
    records = []
    for name, recipe, subject, seconds in zip(("", *PLANNED), recipes, subjects, measured, strict=True):
        found = estimate(recipe.config, subject, read_shape("1xCPU"), rate)
        assert isinstance(found, Estimate)
        if name:
            off = abs(found.step_s / seconds - 1)
            how = (
                f"{name}: planned {found.step_s * 1e3:.0f} ms a step with the rate that another encoder reached, "
                f"{seconds * 1e3:.0f} ms of CPU time measured, fastest of interleaved rounds"
            )
            records.append(record(f"plan/time_off/{name.split(',')[0].replace(' ', '_')}", off, 0.25, how, "lower"))
    return records
