"""A run folder's recipe and steps in MLflow's terms."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from xalign_ray.track.events import MAX_POINTS, Thinning
from xalign_ray.track.mlflow_run import flatten, found_by


def test_a_recipe_becomes_dotted_keys() -> None:
    recipe = {
        "seed": 0,
        "notes": "",
        "train": {"max_steps": 20, "clip": None, "bf16": True},
        "objectives": [{"kind": "masked_lm", "weight": 1.0}, {"kind": "dictionary_alignment"}],
        "languages": ["en", "de"],
        "overrides": {},
    }
    assert flatten(recipe) == {
        "seed": "0",
        "notes": "",
        "train.max_steps": "20",
        "train.clip": "null",
        "train.bf16": "true",
        "objectives.0.kind": "masked_lm",
        "objectives.0.weight": "1.0",
        "objectives.1.kind": "dictionary_alignment",
        "languages": '["en", "de"]',
        "overrides": "{}",
    }


def test_a_long_value_is_cut_at_250_characters_and_says_so() -> None:
    (value,) = flatten({"notes": "x" * 1000}).values()
    assert len(value) == 250
    assert value.endswith("x...")


def test_a_key_that_mlflow_would_refuse_is_spelled_with_underscores() -> None:
    assert flatten({"weights": {"a&b=c": 1}}) == {"weights.a_b_c": "1"}


@pytest.mark.parametrize("steps", [1, 20, 1000, 1999, 2000, 2001, 125_000, 1_000_003])
def test_a_run_of_any_length_has_at_most_2000_points_the_last_among_them(steps: int) -> None:
    thinning = Thinning(steps)
    kept, last = [], -float("inf")
    for step in range(1, steps + 1):
        if thinning.place(step) > last:
            last = thinning.place(step)
            kept.append(step)
    assert min(steps, MAX_POINTS // 2) <= len(kept) <= MAX_POINTS
    assert kept[-1] == steps
    gaps = {b - a for a, b in pairwise(kept[1:])}
    assert len(gaps) <= 1


@pytest.mark.parametrize(
    ("start", "scale"),
    [
        ({"recipe": "tiny/mlm"}, "tiny"),
        ({"recipe": "mine.yaml"}, "own"),
        ({"recipe": "studies/weam-tiny", "labels": {"scale": "tiny"}}, "tiny"),
        ({"recipe": "studies/side", "labels": {"scale": ""}}, None),
    ],
)
def test_the_scale_is_a_released_recipes_folder_and_what_a_study_says(start: dict[str, Any], scale: str | None) -> None:
    assert found_by(start, {}).get("scale") == scale
