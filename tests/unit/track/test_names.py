"""The list of metric names keeps to its own grammar."""

from __future__ import annotations

import re
import subprocess
import sys

from xalign_ray.track.events import METRICS


def test_training_and_data_keys_are_area_and_name() -> None:
    assert [name for name in METRICS if not re.fullmatch(r"[a-z_]+/[a-z_]+", name)] == []


def test_every_name_has_a_description() -> None:
    assert all(METRICS.values())


def test_names_events_and_follower_import_neither_mlflow_nor_torch() -> None:
    code = (
        "import sys, xalign_ray.track.events, xalign_ray.track.events, xalign_ray.track.follower\n"
        "print(sorted({'mlflow', 'torch', 'ray'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60).strip() == "[]"
