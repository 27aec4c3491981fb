"""The package runs nothing that it reads, and opens no door by itself: calls that would are found by name."""

from __future__ import annotations

import ast
import re

import pytest

from tests.unit.rules.tree import PACKAGE, ROOT, python_files

RUNS = {"eval", "exec", "compile"}  # of Python itself


def calls(source: ast.AST) -> list[tuple[ast.Call, str, set[tuple[str, object]]]]:
    """Each call, its last name, and the options that are constants."""
    found = []
    for node in ast.walk(source):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            constants = {
                (word.arg or "", word.value.value) for word in node.keywords if isinstance(word.value, ast.Constant)
            }
            found.append((node, name, constants))
    return found


def wrong_in(text: str) -> list[str]:
    """What a source would run, or leave open."""
    wrong = []
    for node, name, options in calls(ast.parse(text)):
        if isinstance(node.func, ast.Name) and name in RUNS:
            wrong.append(f"{node.lineno}: {name} runs text")
        if name == "from_pretrained" and ("trust_remote_code", False) not in options:
            wrong.append(f"{node.lineno}: from_pretrained without trust_remote_code=False")
        if {("allow_pickle", True), ("trust_remote_code", True), ("shell", True)} & options:
            wrong.append(f"{node.lineno}: {name} with {options}")
    return wrong


def test_nothing_that_is_read_is_run() -> None:
    files = python_files(PACKAGE, ROOT / "jobs")
    found = {str(path.relative_to(ROOT)): wrong_in(path.read_text(encoding="utf-8")) for path in files}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_pickles_are_read_in_one_place() -> None:
    """`torch.load` under `only_data`, and the pickle module nowhere but for its error."""
    loads, pickles = set(), set()
    for path in python_files(PACKAGE, ROOT / "jobs"):
        text = path.read_text(encoding="utf-8")
        loads |= {path.name} if "torch.load(" in text else set()
        pickles |= {path.name} if "pickle.load" in text else set()
    assert loads == {"checkpoint.py", "engine.py"}
    assert pickles == {"stage.py", "worker.py"}  # Ray's, between the processes of one cluster


def test_nobody_sets_rays_authentication() -> None:
    """Ray's own default closes a cluster that it starts; a joined one has its own mode."""
    sets = re.compile(r"""RAY_AUTH_MODE(=disabled| \?=|"\] ?=|", ?"disabled")""")
    places = [*python_files(PACKAGE, ROOT / "jobs"), ROOT / "Makefile", ROOT / ".ci" / "run"]
    assert [str(path) for path in places if sets.search(path.read_text(encoding="utf-8"))] == []
    for text in ('environ.setdefault("RAY_AUTH_MODE", "disabled")', "export RAY_AUTH_MODE ?= disabled"):
        assert sets.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "AutoModel.from_pretrained(name)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
        "np.load(path, allow_pickle=True)",
        "eval(text)",
        "subprocess.run(text, shell=True)",
    ],
)
def test_the_rule_finds_one(text: str) -> None:
    assert wrong_in(text)
