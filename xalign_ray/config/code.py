"""Hashes of source code: of folders of this package, and of the modules of the user's own that a recipe names."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from xalign_ray.config.plugins import has_family, import_plugin
from xalign_ray.config.schema import RunConfig
from xalign_ray.work.artifacts import hash_file, hash_value

PACKAGE = __name__.partition(".")[0]
ROOT = Path(__file__).resolve().parent.parent
TEXT_CODE = ("sources", "clean/text_stage", "config/language_codes", "vocabulary/words")  # decides the text of a source
_ROWS = ("shards/files", "shards/rows", "shards/counter_random")
SCORES_CODE = ("tasks", "finetune", "models")  # decides the scores of an encoder
SHARDS_CODE = (*TEXT_CODE, *_ROWS, "clean", "vocabulary", "align", "tokens")  # decides the shards of a recipe
ORDER_CODE = ("streams", "shards/order", "shards/prepared")  # with SHARDS_CODE it decides the batches
INSTALLED = {"site-packages", "dist-packages"}  # of a module installed there, others there are libraries


@cache
def package_code(*modules: str) -> str:
    """SHA-256 of the code of some folders or modules of this package: of their names and content, wherever it lies.

    A folder that was made by other code has another name: no number has to be raised by hand.

    Example: `package_code("sources", "vocabulary/words")`.
    """
    files = {path for module in modules for path in _files_of(ROOT, module)}
    return hash_value({path.relative_to(ROOT).as_posix(): _hash_code(path) for path in files})


def plugin_hashes(config: RunConfig) -> dict[str, list[str]]:
    """For each module of the user's own that defines a stream, loss or family of the recipe, its sources' hashes."""
    kinds = (*config.streams, *config.objectives)
    modules = {name for kind in kinds for name in (type(kind).__module__, kind.computed_by.partition(":")[0]) if name}
    modules |= {name for name in config.plugins if has_family(import_plugin(name))}
    return {name: source_hashes(name) for name in sorted(modules) if name.partition(".")[0] != PACKAGE}


def source_hashes(name: str) -> list[str]:
    """SHA-256 of the files of a module: all of its package, and the modules next to it that these import; sorted."""
    return sorted(_hash_code(path) for path in set(_source_files(name)))


def _hash_code(path: Path) -> str:
    """Hash of a file; of Python code the hash of its syntax tree without comments, docstrings and layout.

    Another minor version of Python may have another tree.
    """
    tree = _parse(path) if path.suffix == ".py" else None
    return hash_value(ast.dump(_WithoutDocstrings().visit(tree))) if tree else hash_file(path)


class _WithoutDocstrings(ast.NodeTransformer):
    """Removes constants that are statements: they do nothing."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node


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


def _files_of(root: Path, module_name: str, is_package: bool = False) -> Iterator[Path]:
    """The files of a module or package in a folder, without caches and hidden ones; none if it is not there."""
    if (root / f"{module_name}.py").is_file():
        yield root / f"{module_name}.py"
    if is_package or (root / module_name / "__init__.py").is_file():
        for path in (root / module_name).rglob("*"):
            inside = path.relative_to(root).parts
            if path.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in inside):
                yield path


def _imported(path: Path) -> set[str]:
    """The top-level names of a file's imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(_parse(path) or ast.Module([], [])):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _parse(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes())
    except SyntaxError:  # of an unfinished file beside the module: its bytes count all the same
        return None
