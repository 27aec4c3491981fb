"""A document that a file names is there, and so is the section."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.rules.tree import ROOT, text_files

NAMED = re.compile(r"(?<![\w/.-])((?:docs|cluster)/[\w/-]+\.md|[A-Z]{3,}\.md)(?:, ([A-Z][\w -]+))?")
# A document's name in capitals with a number of a section, such as notes that were never part of the repository.
NUMBERED = re.compile(r"\b((?!ISBN|YAML)[A-Z]{4,}) (\d+(?:\.\d+)?)(?![\w%])")
FILES = [path for path in text_files() if path.suffix in (".py", ".yaml", ".yml", ".md", ".toml", ".sbatch", "")]


def headings(page: Path) -> list[str]:
    return [line.lstrip("# ") for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("#")]


def wrong_names(text: str, beside: Path) -> list[str]:
    """What the text names and the repository lacks."""
    flat = re.sub(r"\n[ #]*", " ", text)  # a reference may go on in the next line of a comment
    wrong = [f"{name} {section}" for name, section in NUMBERED.findall(flat)]
    for name, section in NAMED.findall(flat):
        page = next((place for place in (ROOT / name, beside / name) if place.is_file()), None)
        if page is None or (section and not any(section.startswith(heading) for heading in headings(page))):
            wrong.append(f"{name}, {section}" if section else name)
    return wrong


@pytest.mark.parametrize(
    "text",
    ["drawn as in " + "NOTES" + " 4.2.", "see " + "NOTES" + ".md", "docs/explanation/" + "nothing.md", "(ZERO" + " 1)"],
)
def test_the_rule_finds_a_document_that_is_not_there(text: str) -> None:
    assert wrong_names(text, ROOT)


def test_the_rule_finds_a_section_that_is_not_there() -> None:
    page = "docs/explanation/" + "methods.md"
    assert wrong_names(f"({page}, Masking)", ROOT) == []
    assert wrong_names(f"({page}, Lost and found)", ROOT) == [f"{page}, Lost and found"]


def test_every_document_that_a_file_names_is_there() -> None:
    wrong = {
        path.relative_to(ROOT).as_posix(): found
        for path in FILES
        if (found := wrong_names(path.read_text(encoding="utf-8", errors="replace"), path.parent))
    }
    assert wrong == {}
