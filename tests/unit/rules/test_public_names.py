"""A public name of the package stands for one thing: a reader who searches for it finds one definition."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.unit.rules.tree import PACKAGE, parse, python_files

# Of the command line and the Python API, under the names of what studies call too.
DOORS = {"evaluate", "load_recipe", "main", "plan", "pretrain", "report", "study", "tune", "verify"}
# Names that still stand for two things or more. The list only gets shorter: who renames one deletes it here.
TWICE = {
    "Choice",
    "Encoder",
    "Entry",
    "Given",
    "Job",
    "Lamb",
    "Lexicon",
    "Prepared",
    "Progress",
    "Question",
    "Run",
    "Sentence",
    "Task",
    "check_contents",
    "check_files",
    "check_languages",
    "check_method",
    "choose",
    "compare",
    "connect",
    "count_pairs",
    "describe",
    "duration",
    "export",
    "facts_of",
    "family_of",
    "fetch",
    "find_columns",
    "flatten",
    "follow",
    "hash_files",
    "identify",
    "is_finished",
    "is_text",
    "measure",
    "number_words",
    "open_start",
    "prepare",
    "read_lines",
    "read_tests",
    "read_text",
    "read_translations",
    "say",
    "split_words",
    "state_of",
    "summarize",
    "train",
    "write_sample",
}


def find_twice(files: Iterable[Path]) -> dict[str, list[str]]:
    """The files that define each top-level function or class of several files."""
    found = defaultdict(list)
    for path in files:
        for node in parse(path).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.name if path.parent == PACKAGE else f"{path.parent.name}/{path.name}")
    return {name: places for name, places in found.items() if len(set(places)) > 1}


def test_no_public_name_stands_for_two_things() -> None:
    found = find_twice(python_files(PACKAGE))
    assert {name: places for name, places in found.items() if name not in TWICE | DOORS} == {}


def test_a_name_of_two_files_is_found(tmp_path: Path) -> None:
    for name, text in (("one.py", "def score(): ...\ndef own(): ..."), ("two.py", "class score: ...\ndef _own(): ...")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert list(find_twice(sorted(tmp_path.iterdir()))) == ["score"]
