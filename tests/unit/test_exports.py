"""An export replaces an export only."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.unit.results.run_folders import write_run
from xalign_ray import exports
from xalign_ray.errors import ConfigError
from xalign_ray.work.locks import Holder

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
    manifest = {"fingerprint": "0", "step": 1, "files": {"config.json": "0"}}
    dead = asdict(Holder("export", started="0"))  # its lock is taken at once
    for name in OTHERS[there]:
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text(json.dumps(dead if name == ".lock" else manifest))
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
