"""Code, comments and pages use the field's words, not our own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.rules.tree import PACKAGE, ROOT, markdown_pages, python_files

OURS = {
    r"scrambl\w+": "splitmix64, shuffle",
    r"\bdice\b": "rng",
    r"\btongues?\b": "language",
    r"\bcures?\b": "hint",
    r"\bmend(s|ed|ing)?\b": "repair",
    r"\blearnt\b": "learned, cached",
    r"\bstrangers?\b": "an encoder made elsewhere",
    r"\b_?least_": "min_",
    r"\b_?most_(?!common\b)": "max_",
}
FILES = [path for path in python_files(PACKAGE) if path.name != "renamed.py"] + markdown_pages()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_word_is_our_own(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert {ours: terms for ours, terms in OURS.items() if re.search(ours, text, re.IGNORECASE)} == {}
