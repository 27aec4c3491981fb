"""What an export imports is imported after the first step of a training; an export replaces an export only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.unit.results.run_folders import write_run
from xalign_ray import exports
from xalign_ray.errors import ConfigError
from xalign_ray.track.events import EventLog

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
    EventLog(log, 1).write("step", 1)
    return log


def _joined() -> None:
    for thread in threading.enumerate():
        if thread.name == "libraries":
            thread.join()


def test_the_first_step_of_this_attempt_starts_the_imports(library: Path) -> None:
    with exports.libraries_ahead(library):
        log = EventLog(library, 2)
        log.write("start", 1)
        time.sleep(0.1)
        assert NAME not in sys.modules
        log.write("step", 2)
        _joined()
    assert NAME in sys.modules


def test_an_export_waits_for_imports_that_have_begun(library: Path, tmp_path: Path) -> None:
    """Two threads that import the same libraries meet modules that are half there."""
    (tmp_path / f"{NAME}.py").write_text("import time\ntime.sleep(0.5)\nWHOLE = True\n", encoding="utf-8")
    with exports.libraries_ahead(library):
        EventLog(library, 2).write("step", 2)
        while NAME not in sys.modules:
            time.sleep(0.01)
    assert sys.modules[NAME].WHOLE


def test_a_run_that_never_starts_imports_nothing(library: Path) -> None:
    with exports.libraries_ahead(library):
        pass
    _joined()
    assert NAME not in sys.modules


ENDING = """
import atexit, sys, time
from contextlib import suppress
from pathlib import Path
from tests.unit.results.run_folders import write_run
from xalign_ray import exports
from xalign_ray.errors import ConfigError
from xalign_ray.track.events import EventLog
exports.LIBRARIES, exports.LOOK_S = ("slow_library",), 0.01
atexit.register(time.sleep, 1)  # as Ray does, to end its processes
log = Path(sys.argv[1])
with suppress(KeyboardInterrupt), exports.libraries_ahead(log):
    EventLog(log, 1).write("step", 1)
    while "slow_library" not in sys.modules:
        time.sleep(0.01)
    raise KeyboardInterrupt
"""


def test_a_process_that_ends_meanwhile_says_nothing(tmp_path: Path) -> None:
    """Python lets nobody register an end of threads then, which libraries do when they are imported."""
    late = "import threading, time\ntime.sleep(0.5)\nthreading._register_atexit(print)\n"
    (tmp_path / "slow_library.py").write_text(late, encoding="utf-8")
    command = [sys.executable, "-c", ENDING, str(tmp_path / "events.jsonl")]
    slow_end = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(exports.__file__).parents[1]}"}
    ended = subprocess.run(command, env=slow_end, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


OTHERS = {
    "file": ["notes.txt"],
    "hidden file": [".git/HEAD"],
    "file beside an export": ["config.json", "manifest.json", "notes.txt"],
    "nothing": [],
    "export": ["config.json", "manifest.json", "README.md", ".lock"],
}


@pytest.mark.parametrize("there", OTHERS)
def test_an_export_replaces_an_export_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    run, out = write_run(tmp_path / "run"), tmp_path / "out"
    out.mkdir()
    for name in OTHERS[there]:
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text(json.dumps({"fingerprint": "0", "step": 1, "files": {"config.json": "0"}}))
    monkeypatch.setattr(exports, "open_data", lambda _: None)
    monkeypatch.setattr(exports, "export_run", lambda *_: out)
    if there in ("nothing", "export"):
        assert exports.export(run, 0, out) == out
        return
    with pytest.raises(ConfigError, match=r"which no export wrote, .* Name a new folder\."):
        exports.export(run, 0, out)
    with pytest.raises(ConfigError, match=r"which no export wrote, .* Name a new folder\."):
        exports.export(run, 0, out / OTHERS[there][-1])
    assert (out / OTHERS[there][-1]).is_file()
