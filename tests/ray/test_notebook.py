"""The notebook of docs/ runs from its first cell to its last, and shows what its page shows."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray

from tests.ray.notebook import execute, read, shown

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


def test_the_notebook_runs_and_its_page_shows_what_it_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    there, now = read(), execute(tmp_path)
    assert shown(there) == shown(now), "renew it: python -m tests.ray.notebook"
    plans = [next(cell for cell in book.cells if cell.cell_type == "code").outputs[0].text for book in (there, now)]
    assert plans[0] == plans[1], "renew it: python -m tests.ray.notebook"
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]  # it writes nothing beside its output
