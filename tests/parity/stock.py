"""Runs scripts under transformers as users have it: the project's own 5.x, and 4.57 from a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

VERSIONS = ("4", "5")
TRANSFORMERS_4 = Path(sys.prefix) / "transformers-4"  # `make .venv/transformers-4`


def run_stock(version: str, script: str, *arguments: str, cwd: Path, seconds: int = 300) -> None:
    """Runs a script, which must not import xalign_ray, under one major version of transformers."""
    if not (TRANSFORMERS_4 / "transformers").is_dir():
        pytest.fail(f"{TRANSFORMERS_4} is missing: run `make .venv/transformers-4`.")
    check = f'import sys, transformers\nassert transformers.__version__.startswith("{version}.")\n'
    environment = os.environ | {"PYTHONPATH": str(TRANSFORMERS_4) if version == "4" else "", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", check + script + '\nassert "xalign_ray" not in sys.modules\n', *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
