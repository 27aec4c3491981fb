"""The embedded world of an output folder, written at its first use."""

from __future__ import annotations

from pathlib import Path

from xalign_ray.demo.writer import is_written, write_demo
from xalign_ray.sources.inputs import WORLD
from xalign_ray.work.job import open_job


def open_world(output: Path) -> Path:
    """The folder of the embedded world below `output`; written where it is missing or of another version."""
    folder = output / WORLD
    if not is_written(folder):
        with open_job(folder, "writing the embedded world", upload=None):
            if not is_written(folder):
                write_demo(folder)
    return folder
