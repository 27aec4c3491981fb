"""xalign-ray: one platform on which the methods that align an encoder's languages are recipes.

Each verb of the command line is a function. What it needs is imported when it is called: `import xalign_ray` brings in
neither torch nor Ray nor pandas.
"""

from __future__ import annotations

from importlib import import_module
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from xalign_ray.verbs.opened_run import Run, open_run

if TYPE_CHECKING:
    from xalign_ray.config.load import Recipe
    from xalign_ray.verbs.continue_encoder import continue_encoder
    from xalign_ray.verbs.recipes import export, plan, prepare, pretrain
    from xalign_ray.verbs.scores import evaluate, report, study, tune, verify
    from xalign_ray.verbs.trim_encoder import trim_encoder

__version__ = "0.1.0"
__all__ = [
    "Run",
    "continue_encoder",
    "evaluate",
    "export",
    "load_recipe",
    "open_run",
    "plan",
    "prepare",
    "pretrain",
    "report",
    "study",
    "trim_encoder",
    "tune",
    "verify",
]
_OF_RECIPES = ("export", "plan", "prepare", "pretrain")


def load_recipe(name: str | PathLike[str], *settings: str) -> Recipe:
    """Resolves a recipe; starts and writes nothing.

    Args:
        name: a recipe of the package, such as "tiny/mlm", or a YAML file.
        settings: `key=value` as after `--set`, such as "train.max_steps=100"; the last one wins.

    Raises:
        ConfigError: it cannot mean anything; names file, key and the nearest valid key.
    """
    from xalign_ray.config.load import load_recipe as load

    return load(fspath(name), settings)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from xalign_ray.work.process import stoppable

    module = name if name.endswith("_encoder") else "recipes" if name in _OF_RECIPES else "scores"
    verb = stoppable()(getattr(import_module(f"xalign_ray.verbs.{module}"), name))
    return globals().setdefault(name, verb)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
