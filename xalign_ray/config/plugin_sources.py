"""Source files of plug-ins and tasks of the user's own, hashed: what they compute is part of a run's identity."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from xalign_ray.config.plugins import import_plugin
from xalign_ray.config.schema import RunConfig
from xalign_ray.work.artifacts import hash_file

PACKAGE = __name__.partition(".")[0]
INSTALLED = {"site-packages", "dist-packages"}  # of a module installed there, others there are libraries


def plugin_hashes(config: RunConfig) -> dict[str, list[str]]:
    """For each module of the user's own that defines a stream or loss of the recipe, the hashes of its sources."""
    modules = {type(one).__module__ for one in (*config.streams, *config.objectives)}
    return {name: source_hashes(name) for name in sorted(modules) if name.partition(".")[0] != PACKAGE}


def source_hashes(name: str) -> list[str]:
    """SHA-256 of the files of a module: all of its package, and the modules next to it that these import; sorted."""
    return sorted(hash_file(path) for path in set(_source_files(name)))


def _source_files(name: str) -> Iterator[Path]:
    top = name.partition(".")[0]
    import_plugin(top)
    module = sys.modules[top]
    folders = [Path(folder) for folder in getattr(module, "__path__", ())]
    root = (folders[0] if folders else Path(str(module.__file__))).resolve().parent
    todo, seen = [top], {PACKAGE}
    while todo:
        module_name = todo.pop()
        if module_name in seen:
            continue
        seen.add(module_name)
        for path in _files_of(root, module_name, is_package=module_name == top and bool(folders)):
            yield path
            if path.suffix == ".py" and root.name not in INSTALLED:
                todo += _imported(path)


def _files_of(root: Path, module_name: str, is_package: bool) -> Iterator[Path]:
    """The files of a module or package in a folder, without caches and hidden ones; none if it is not there."""
    if (root / f"{module_name}.py").is_file():
        yield root / f"{module_name}.py"
    if is_package or (root / module_name / "__init__.py").is_file():
        for path in (root / module_name).rglob("*"):
            inside = path.relative_to(root).parts
            if path.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in inside):
                yield path


def _imported(path: Path) -> set[str]:
    """The first names of what a file imports, wherever in it that stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found
