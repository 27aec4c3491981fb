"""Private parts of libraries: reached for in `private/` alone, where each place says what breaks when they change."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.rules.tree import PACKAGE, ROOT, is_within, parse, python_files

HOME = PACKAGE / "private"
# Modules that are nobody's interface though no name in them begins with an underscore.
UNDOCUMENTED = [
    "deepspeed",
    "ray.train.v2",
    "transformers.modeling_layers",
    "transformers.models",
    "transformers.utils.hub",
]
DOCUMENTED = {"os._exit", "sys._getframe"}


def reaches(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, what) of each private or undocumented part of another module that a file reaches for.

    Names of the file itself are its own: what it defines, and what it stores in attributes of `self` or `cls`.
    """
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            modules |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
            whole = names if isinstance(node, ast.Import) else [f"{node.module}.{name}" for name in names]
            for name in whole:
                if any(is_private(part) for part in name.split(".")) or any(is_within(name, m) for m in UNDOCUMENTED):
                    yield node.lineno, name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            of, text = node.value, ast.unparse(node)
            is_own = node.attr in own or ast.unparse(of) in ("self", "cls", "super()")
            if is_private(node.attr) and not is_own and text not in DOCUMENTED:
                yield node.lineno, text
            root = text.partition(".")[0]
            is_patch = isinstance(node.ctx, ast.Store) and root in modules and root[:1].islower()
            if is_patch and not text.startswith(("torch.backends.", "os.environ")):
                yield node.lineno, f"{text} = ..."
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".__dict__.update"):
            yield node.lineno, ast.unparse(node.func)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_private_parts_of_libraries_are_reached_for_in_one_folder() -> None:
    files = [path for path in python_files(PACKAGE, ROOT / "jobs") if HOME not in path.parents]
    wrong = [f"{path.relative_to(ROOT)}:{line}: {what}" for path in files for line, what in reaches(parse(path))]
    assert wrong == []


@pytest.mark.parametrize(
    "source",
    [
        "import ray._private.state",
        "from torch.utils._pytree import tree_map",
        "from torch.distributed.distributed_c10d import _get_default_store",
        "from deepspeed.runtime.config import DeepSpeedConfig",
        "from ray.train.v2.api.exceptions import WorkerGroupError",
        "import ray\nnode = ray._private.worker.global_worker.node",
        "def f(config):\n    config._attn_implementation = 'eager'",
        "def f(self):\n    return self.model._parameters",
        "from torch import nn\nnn.functional.linear = None",
        "from deepspeed.utils import zero_to_fp32",
        "import x\nx.y.__dict__.update(print=None)",
    ],
)
def test_the_rule_finds_a_reach(source: str) -> None:
    assert list(reaches(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "class A:\n    def __init__(self):\n        self._x = 1\n    def f(self):\n        return self._x",
        "class A:\n    def _f(self):\n        ...\nTABLE = [A._f]",
        "import os\nos._exit(1)",
        "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True",
        "from ray.train import WorkerGroupError",
    ],
)
def test_the_rule_leaves_own_and_documented_parts_alone(source: str) -> None:
    assert list(reaches(ast.parse(source))) == []


@pytest.mark.parametrize("path", python_files(HOME), ids=lambda path: path.name)
def test_each_place_says_what_breaks_when_the_library_changes(path: Path) -> None:
    functions = [node for node in parse(path).body if isinstance(node, ast.FunctionDef)]
    assert [node.name for node in functions if "If it changes: " not in (ast.get_docstring(node) or "")] == []


@pytest.mark.parametrize("path", [path for path in python_files(HOME) if path.name != "__init__.py"], ids=str)
def test_a_file_reaches_into_its_own_library(path: Path) -> None:
    """accelerate belongs to transformers here, as it does for whoever installs them."""
    libraries = {"ray", "torch", "transformers", "deepspeed", "mlflow"} - {path.stem}
    allowed = {"torch"} if path.stem in ("deepspeed", "transformers") else set()  # their tensors
    names = {alias.name for node in ast.walk(parse(path)) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(parse(path)) if isinstance(node, ast.ImportFrom)}
    assert {name for name in names if name.partition(".")[0] in libraries - allowed} == set()
