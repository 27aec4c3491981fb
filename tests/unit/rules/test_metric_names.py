"""The list of metric names is closed: what any file of the package writes is in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from tests.unit.rules.tree import PACKAGE, ROOT, parse, python_files
from xalign_ray.config.choices import Objective
from xalign_ray.track.events import METRICS

AREAS = {key.partition("/")[0] for key in METRICS}
KEY = re.compile(rf"({'|'.join(sorted(AREAS))})/[a-z_]+")
NAMES = PACKAGE / "track" / "events.py"


def objective_kinds() -> list[str]:
    union = get_args(Objective)[0]
    members = get_args(union) or (union,)
    return [member.model_fields["kind"].default for member in members]


def written_keys() -> Iterator[tuple[Path, int, str]]:
    """Keys that stand as plain text in the package; `pos`-like words in prose have no `area/` before them."""
    for path in python_files(PACKAGE):
        if path == NAMES:
            continue
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and KEY.fullmatch(node.value):
                yield path, node.lineno, node.value


def test_every_key_that_the_package_writes_is_in_the_list() -> None:
    # A key that is put together (`train/loss_` + kind) shows up as its beginning.
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {key}"
        for path, line, key in written_keys()
        if key not in METRICS and not (key.endswith("_") and any(known.startswith(key) for known in METRICS))
    ]
    assert wrong == []


def test_training_writes_keys_of_the_list() -> None:
    assert {key for path, _, key in written_keys() if path.parent == PACKAGE / "train"} >= {
        "train/loss",
        "train/tokens_per_s",
        "run/seconds",
    }


def test_every_objective_has_a_loss_in_the_list() -> None:
    kinds = objective_kinds()
    assert "masked_lm" in kinds
    assert [kind for kind in kinds if f"train/loss_{kind}" not in METRICS] == []
