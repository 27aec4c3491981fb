"""The embedded world in a process of its own, at its full size, and over one of another version."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.demo.conftest import SIZES
from tests.unit.demo.test_writer import contents, read_lines, read_sentences
from xalign_ray.demo import first_use, write_demo


def test_same_seed_in_another_process_writes_the_same_bytes(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from xalign_ray.demo import write_demo;"
        f"write_demo(Path(sys.argv[1]), seed=3, **{SIZES!r})"
    )
    environment = os.environ | {"PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "there")], check=True, env=environment, timeout=60)
    write_demo(tmp_path / "here", seed=3, **SIZES)
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def test_the_default_sizes_are_those_of_the_recipes(tmp_path: Path) -> None:
    write_demo(tmp_path)
    assert len(read_sentences(tmp_path, "en")) == 6000
    assert len(read_lines(tmp_path / "tatoeba/tatoeba.qhy-en.en")) == 500
    assert len(read_lines(tmp_path / "parallel/train.en-qhy.align")) == 2000


def test_the_world_of_another_version_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"sentences": 30, "parallel_sentences": 5, "retrieval_pairs": 5}
    monkeypatch.setattr(first_use, "write_demo", lambda folder: write_demo(folder, **small))
    folder = first_use.open_world(tmp_path)
    whole = (folder / "wiki" / "en.jsonl").read_bytes()
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "wiki" / "en.jsonl").write_text("of old")
    assert first_use.open_world(tmp_path) == folder
    assert (folder / "wiki" / "en.jsonl").read_text() == "of old", "a world of this version is left alone"
    (folder / "manifest.json").write_text(json.dumps(manifest | {"code": "of another version"}))
    first_use.open_world(tmp_path)
    assert (folder / "wiki" / "en.jsonl").read_bytes() == whole
