"""What an export imports is imported once the run's log grows, and not before."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from xalign_ray import exports

NAME = "library_of_this_test"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log, and a module that nobody has imported."""
    (tmp_path / f"{NAME}.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    monkeypatch.setattr(exports, "LIBRARIES", (NAME,))
    monkeypatch.setattr(exports, "LOOK_S", 0.01)
    log = tmp_path / "events.jsonl"
    log.write_text("an earlier attempt\n", encoding="utf-8")
    return log


def _joined() -> None:
    for thread in threading.enumerate():
        if thread.name == "libraries":
            thread.join()


def test_a_log_that_grows_starts_the_imports(library: Path) -> None:
    with exports.libraries_ahead(library):
        library.write_text("an earlier attempt\nand this one\n", encoding="utf-8")
        _joined()
    assert NAME in sys.modules


def test_a_run_that_never_starts_imports_nothing(library: Path) -> None:
    with exports.libraries_ahead(library):
        pass
    _joined()
    assert NAME not in sys.modules
