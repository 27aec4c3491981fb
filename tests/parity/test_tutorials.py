"""The blocks of a tutorial do what the page says, in a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.rules.tree import ROOT

PAGES = ROOT / "docs" / "tutorials"
BLOCK = re.compile(r"^```(python|yaml|bash)\n(?:# (?P<place>[\w./-]+(?:, [^\n]*)?)\n)?(?P<text>.*?)^```", re.M | re.S)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with the files of the page in it."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("xalign_ray", "tests", "pyproject.toml"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    for block in BLOCK.finditer((PAGES / "add_a_loss.md").read_text(encoding="utf-8")):
        path, _, where = (block["place"] or "").partition(", ")
        if path:
            _apply(folder / path, where, block["text"])
    return folder


def _apply(file: Path, where: str, text: str) -> None:
    old = file.read_text(encoding="utf-8") if file.exists() else ""
    verb, _, name = where.rpartition(" ")
    statement = re.search(rf"^{name} = .*?^[\])]\n", old, re.M | re.S) if name else None
    if not where:
        file.write_text(text, encoding="utf-8")
    elif statement and verb == "above":
        file.write_text(old[: statement.start()] + text + "\n\n" + old[statement.start() :], encoding="utf-8")
    elif statement and verb == "in place of":
        file.write_text(old[: statement.start()] + text + old[statement.end() :], encoding="utf-8")
    else:
        raise AssertionError(f"the page says '{where}' of {file.name}")


def run(clone: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(clone)}
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=clone, env=environment, capture_output=True, text=True, timeout=300
    )


def test_the_new_losss_own_test_passes(clone: Path) -> None:
    test = "tests/unit/objectives/test_sentence_pull.py"
    done = run(clone, "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", test, "tests/unit/config/test_choices.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_recipe_is_valid_and_listed(clone: Path) -> None:
    checked = run(clone, "xalign_ray", "plan", "tiny/sentence-pull")
    assert checked.returncode == 0, checked.stderr
    assert "1 masked_lm, 1 sentence_pull" in checked.stdout
    assert "tiny/sentence-pull" in run(clone, "xalign_ray", "config", "list").stdout


def test_a_recipe_without_its_stream_is_refused_in_the_words_of_the_page(clone: Path) -> None:
    refused = run(
        clone, "xalign_ray", "config", "check", "tiny/sentence-pull", "--set", "streams=[{kind: masked_text}]"
    )
    said = "objective sentence_pull needs a stream contrasted_pairs; the recipe names none"
    assert said in refused.stderr
    assert said in (PAGES / "add_a_loss.md").read_text(encoding="utf-8")
