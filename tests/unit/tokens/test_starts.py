"""A start on inputs that are known opens none of them, and cuts them into parts as it did before."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from tests.unit.conftest import make_config, prepare_here, write_inputs
from xalign_ray.tokens.find import find_prepared
from xalign_ray.tokens.stats import measure

OLD = 1_600_000_000  # seconds: a file that was written long ago is remembered
OPENED: list[str] = []


def watch(event: str, arguments: tuple) -> None:
    if event == "open" and isinstance(arguments[0], str):
        OPENED.append(arguments[0])


sys.addaudithook(watch)  # it stays until the process ends


def opened(folder: Path, act: Callable[[], object]) -> set[str]:
    """The names of the inputs that are opened meanwhile, however often."""
    OPENED.clear()
    act()
    return {Path(path).name for path in OPENED if Path(path).parent == folder} - {"recipe.yaml"}


def write_old_inputs(folder: Path) -> list[Path]:
    write_inputs(folder)
    files = [path for path in folder.iterdir() if path.is_file()]
    for path in files:
        os.utime(path, (OLD, OLD))
    return files


def test_no_start_on_prepared_data_opens_an_input(tmp_path: Path) -> None:
    names = {path.name for path in write_old_inputs(tmp_path)}
    config = make_config(tmp_path)
    assert opened(tmp_path, lambda: prepare_here(config)) == names
    assert opened(tmp_path, lambda: prepare_here(config)) == set()
    assert opened(tmp_path, lambda: find_prepared(config)) == set()
    assert opened(tmp_path, lambda: measure(str(tmp_path / "recipe.yaml"))) == set()
