"""Files one can read: a first sentence, a length, no print, and nothing of the machine they were written on."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.unit.rules.tree import PACKAGE, ROOT, first_sentence, parse, python_files, text_files

LONGEST = 600  # lines; past that a file is asking to be two
OURS = python_files(PACKAGE, ROOT / "jobs", ROOT / "docs", ROOT / "tests", ROOT / "dashboards")
# Spelled in pieces, or this file would break its own rule.
MACHINE_PATHS = re.compile(r"(?<![\w./-])/" + r"(work|root|home/\w+|Users/\w+|mnt/\w+)/")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_file_is_longer_than_600_lines() -> None:
    lengths = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in OURS}
    assert {path: length for path, length in lengths.items() if length > LONGEST} == {}


def test_every_file_begins_with_a_sentence_that_says_its_job() -> None:
    wrong = {name(path): first_sentence(path) for path in OURS if len(first_sentence(path).split()) < 3}
    assert wrong == {}


def test_every_recipe_begins_with_a_comment_that_says_what_it_is() -> None:
    recipes = sorted((PACKAGE / "recipes").rglob("*.yaml"))
    assert recipes
    assert [name(path) for path in recipes if not path.read_text(encoding="utf-8").startswith("# ")] == []


def test_the_package_does_not_print() -> None:
    calls = [
        f"{name(path)}:{node.lineno}"
        for path in python_files(PACKAGE, ROOT / "jobs")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert calls == []


@pytest.mark.parametrize("written", ["/" + "work/main", "/" + "root/.cache", "'/" + "home/me/data'"])
def test_the_rule_on_machine_paths_finds_one(written: str) -> None:
    assert MACHINE_PATHS.search(f"path = {written}/x")


def test_no_file_names_a_place_of_one_machine() -> None:
    wrong = [
        f"{name(path)}:{number}: {line.strip()[:80]}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if MACHINE_PATHS.search(line)
    ]
    assert wrong == []


def test_no_file_is_larger_than_half_a_megabyte() -> None:
    assert {name(path): path.stat().st_size for path in text_files() if path.stat().st_size > 500_000} == {}


def test_modules_are_named_for_what_they_hold() -> None:
    vague = re.compile(r"(utils?|helpers?|managers?|common|misc)$")
    assert [name(path) for path in OURS if vague.search(path.stem)] == []
