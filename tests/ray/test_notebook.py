"""The notebook of docs/ runs from its first cell to its last, and shows what its page shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.ray.notebook import execute, read, shown
from tests.ray.small import copy_demo
from tests.unit.conftest import prepare_here


def test_the_notebook_runs_and_its_page_shows_what_it_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its data are there: a small world, prepared without Ray."""
    there = read()
    first = next(cell for cell in there.cells if cell.cell_type == "code")
    monkeypatch.chdir(tmp_path)
    copy_demo(Path("runs", "demo"))
    names: dict[str, Any] = {}
    exec(first.source, names)
    prepare_here(names["recipe"].config)
    now = execute(tmp_path)
    assert shown(there) == shown(now), "renew it: python -m tests.ray.notebook"
    plans = [next(cell for cell in book.cells if cell.cell_type == "code").outputs[0].text for book in (there, now)]
    assert plans[0] == plans[1], "renew it: python -m tests.ray.notebook"
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]  # it writes nothing beside its output
