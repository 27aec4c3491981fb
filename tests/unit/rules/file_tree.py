"""The file tree of docs/ from the first sentence of each file; `python -m tests.unit.rules.file_tree` renews it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.unit.rules.tree import PACKAGE, ROOT, first_sentence, python_files

PAGE = ROOT / "docs" / "explanation" / "architecture.md"
BEGIN = "<!-- tree: written by python -m tests.unit.rules.file_tree -->\n```text\n"
END = "```\n<!-- end of tree -->"
INDENT = "  "


def render() -> str:
    """A line for each file of the package and of jobs/, folders before what lies in them."""
    recipes = sorted((PACKAGE / "recipes").rglob("*.yaml"))
    files = [*python_files(PACKAGE), *recipes, *python_files(ROOT / "jobs")]
    return "".join(f"{line}\n" for line in _lines([path.relative_to(ROOT) for path in files]))


def _lines(files: Iterable[Path]) -> Iterator[str]:
    shown: set[Path] = set()
    for path in sorted(files, key=_order):
        for folder in reversed(path.parents[:-1]):
            if folder not in shown:
                shown.add(folder)
                yield _line(folder, f"{folder.name}/", _folder_sentence(ROOT / folder))
        if path.name != "__init__.py":
            yield _line(path, path.name, first_sentence(ROOT / path))


def _order(path: Path) -> tuple:
    """The package first; in a folder its own files first, then its folders, each by name."""
    parts = path.parts
    return (parts[0] != "xalign_ray", *((index < len(parts) - 1, part) for index, part in enumerate(parts)))


def _line(path: Path, name: str, sentence: str) -> str:
    left = INDENT * (len(path.parts) - 1) + name
    return f"{left:<34}{sentence}".rstrip() if len(left) < 34 else f"{left}  {sentence}".rstrip()


def _folder_sentence(folder: Path) -> str:
    own = folder / "__init__.py"
    return first_sentence(own) if own.is_file() else ""


def read_block() -> str:
    """The tree as it stands in the page."""
    _, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    block, end, _ = rest.partition(END)
    assert begin, f"{PAGE} has lost the line before its tree: {BEGIN}"
    assert end, f"{PAGE} has lost the line after its tree: {END}"
    return block


def renew() -> None:
    """Writes the tree into the page."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text.replace(BEGIN + read_block() + END, BEGIN + render() + END), encoding="utf-8")


if __name__ == "__main__":
    renew()
