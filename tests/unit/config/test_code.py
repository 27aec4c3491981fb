"""Hashes of code: text and shards that other code made are made anew, and a copy of the same code finds them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.conftest import write_inputs
from xalign_ray.config.code import ORDER_CODE, ROOT, SHARDS_CODE, TEXT_CODE, package_code

NAMES = """
import sys
from pathlib import Path
from tests.unit.conftest import make_config
from xalign_ray.clean.text_stage import _folder
from xalign_ray.config.identity import inputs_of
from xalign_ray.sources.inputs import data_root, find_sources, split_source
from xalign_ray.sources.stage import InputHashes
from xalign_ray.tokens.find import fingerprint_of
config = make_config(Path(sys.argv[1]))
texts, *others = find_sources(config.data, data_root(config))
hashes = InputHashes(None)
source = split_source(texts[0], hashes.of(texts[0].files))
shards = fingerprint_of(config, [*texts, *others[0]], hashes)
print(_folder(source, Path(sys.argv[1])).name, shards[:12], inputs_of(config, "")["code"]["xalign_ray"][:12])
"""


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    write_inputs(tmp_path)
    return tmp_path


def names(inputs: Path, package: Path) -> list[str]:
    """The names of a text folder and of shards, and the code of a run, by the package that lies in a folder."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package), str(ROOT.parent)])}
    command = [sys.executable, "-c", NAMES, str(inputs), str(package / "cuts")]
    return subprocess.run(
        command, env=environment, cwd=package, check=True, capture_output=True, text=True
    ).stdout.split()


def copy(folder: Path) -> Path:
    shutil.copytree(ROOT, folder / "xalign_ray", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


CHANGED = {  # file of the package: whether the text, the shards and a run are others
    "sources/text.py": (True, True, True),
    "clean/filters.py": (False, True, True),
    "streams/masked.py": (False, False, True),
    "results/charts.py": (False, False, False),
}


def test_a_changed_reader_makes_another_text_folder(inputs: Path, tmp_path: Path) -> None:
    package = copy(tmp_path / "package")
    before = names(inputs, package)
    assert before == names(inputs, copy(tmp_path / "elsewhere")), "the same code in another place"
    for file, changed in CHANGED.items():
        path = package / "xalign_ray" / file
        path.write_text((text := path.read_text()) + "\nCHANGED = 1\n")
        after = names(inputs, package)
        assert tuple(a != b for a, b in zip(after, before, strict=True)) == changed, file
        path.write_text("# A comment.\n" + text.replace('"""', '"""Another sentence. ', 1))
    assert names(inputs, package) == before


def test_all_that_is_hashed_is_there_and_goes_into_a_wheel() -> None:
    for module in (*TEXT_CODE, *SHARDS_CODE, *ORDER_CODE, "models", "demo"):
        assert package_code(module) != package_code(), module
    hashed = [path for folder in ("sources", "clean", "vocabulary", "align", "tokens", "streams", "models")
              for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]  # fmt: skip
    packaged = {".py", ".yaml"}  # as pyproject.toml has it
    assert {path.suffix for path in hashed} <= packaged
