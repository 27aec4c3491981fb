"""Code, comments and pages use the field's words, not our own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.rules.tree import PACKAGE, ROOT, markdown_pages, parse, python_files

# Nowhere: in no key, help text, comment, page or name.
GONE = {
    r"scrambl\w+": "splitmix64, shuffle",
    r"\bdice\b": "rng",
    r"\btongues?\b": "language",
    r"\bcures?\b": "hint",
    r"\bmend(s|ed|ing)?\b": "repair",
    r"\blearnt\b": "learned, cached",
    r"\bstrangers?\b": "an encoder made elsewhere",
    r"\b_?least_": "min_",
    r"\b_?most_(?!common\b)": "max_",
    r"quarantine": "bad rows",
    r"\blanes?\b": "partitions",
    r"ChunkCutter|\blocality\b": "CachedTokenizer, pretokens",
    r"raise_together": "raise_on_all_ranks",
    r"\bwiden(ed)?\b": "extend",
    r"\bresize[ds]?\b": "reshard",
    r"row_tokens|slack_share|feed_forward:": "max_seq_length, reserve_fraction, intermediate_size",
    r"tolerance:": "max_bad_fraction",
    r"\bsweeps?\b": "study",
}
# Not as a name, or part of one, of a module, class, function, parameter, field or variable; English text may have them.
NO_NAMES = {
    "side": "segment, text",
    "sides": "segments, texts",
    "view": "stream",
    "views": "streams",
    "slot": "position",
    "slots": "positions",
    "owner": "source",
    "owners": "source",
    "foreign": "other",
    "told": "reported, logged",
    "tell": "log, report",
    "beside": "next to",
    "repeats": "duplicates",
    "repeated": "duplicates",
    "draws": "samples",
    "dice": "rng",
}
FILES = [path for path in python_files(PACKAGE) if path.name != "renamed.py"] + markdown_pages()
MODULES = list(python_files(PACKAGE))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_word_is_our_own(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert {ours: terms for ours, terms in GONE.items() if re.search(ours, text, re.IGNORECASE)} == {}


def names_of(path: Path) -> Iterator[str]:
    """Every name that a module gives to something, and its own."""
    yield path.stem
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def words_of(name: str) -> set[str]:
    """`_rowSides`, `row_sides` and `RowSides` are of the words row and sides."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_name_has_a_word_of_our_own(path: Path) -> None:
    found = {name: words_of(name) & NO_NAMES.keys() for name in names_of(path)}
    assert {name: words for name, words in found.items() if words} == {}
