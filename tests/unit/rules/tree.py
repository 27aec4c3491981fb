"""The repository as the rules see it: its files, their first sentences, their imports."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "xalign_ray"
UNTRACKED = {".git", ".venv", "build", "_build", "dist", "runs", "__pycache__", ".pytest_cache", ".ruff_cache"}


@dataclass(frozen=True)
class Import:
    """One module that a file names, and where."""

    file: Path
    line: int
    module: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.module}"


def python_files(*folders: Path) -> list[Path]:
    """The .py files below the folders, sorted."""
    return sorted(path for folder in folders for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def text_files() -> list[Path]:
    """Every text file that git has or would take; without git, every one outside what is built and run."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, check=False
    )
    if listed.returncode == 0 and listed.stdout:
        found = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:
        found = [path for path in ROOT.rglob("*") if not UNTRACKED & set(path.relative_to(ROOT).parts)]
    return [path for path in found if path.is_file() and b"\0" not in path.read_bytes()[:4096]]


def markdown_pages() -> list[Path]:
    """What is read as a page: Markdown beside the package, in docs/ and in cluster/."""
    return sorted(path for path in text_files() if path.suffix == ".md")


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def first_sentence(path: Path) -> str:
    """The first sentence of a module's docstring, on one line, or of the comment that a YAML file begins with."""
    if path.suffix == ".py":
        text = ast.get_docstring(parse(path)) or ""
    else:
        text = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].rstrip(".")


@cache
def imports(path: Path) -> list[Import]:
    """What a file imports anywhere in it, and the parts of Ray that it reaches through `ray.`"""
    return list(_find_imports(path))


def _find_imports(path: Path) -> Iterator[Import]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from (Import(path, node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            yield from (Import(path, node.lineno, f"{node.module}.{name.name}") for name in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ray":
            yield Import(path, node.lineno, f"ray.{node.attr}")


def is_within(module: str, package: str) -> bool:
    """Whether a dotted name is the package or inside it."""
    return module == package or module.startswith(f"{package}.")
