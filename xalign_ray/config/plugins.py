"""A recipe's `plugins`: modules of the user's own, whose streams, losses and families of encoders it may name."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

from xalign_ray.config.choices import (
    OBJECTIVES,
    PLUGGED_OBJECTIVES,
    PLUGGED_STREAMS,
    STREAMS,
    ObjectiveChoice,
    StreamChoice,
)
from xalign_ray.config.fields import Frozen
from xalign_ray.errors import ConfigError, first_sentence
from xalign_ray.work.run_folder import RunFolder

FAMILY = "xalign_ray.models.family"  # above this folder, so not imported here: whoever subclasses it has done so


def load_plugin(name: str) -> str:
    """Imports a module, from the current folder or Python's path, and makes the kinds known that it defines.

    Runs of others are read in their folders, and may name a module there: such a one is not imported.

    Raises:
        ValueError: there is no such module, or it defines no kind and no family, or a kind that is taken.
    """
    module = import_plugin(name)
    classes = _classes(module)
    kinds_added = [
        _add(member, added, of_package)
        for member in classes
        for base, added, of_package in (
            (StreamChoice, PLUGGED_STREAMS, STREAMS),
            (ObjectiveChoice, PLUGGED_OBJECTIVES, OBJECTIVES),
        )
        if issubclass(member, base) and isinstance(member.model_fields["kind"].default, str)
    ]
    if not kinds_added and not has_family(module):
        raise ValueError(
            f"{name} ({module.__file__}) defines no kind of stream or loss: no subclass of StreamChoice or "
            "ObjectiveChoice (xalign_ray.config.choices) with a default of `kind`; nor a family of encoders, a class "
            "of Family (xalign_ray.models.family) with a `model_type`"
        )
    return name


def has_family(module: ModuleType) -> bool:
    """Whether a plug-in describes a family of encoders (`models/family.py`)."""
    families = (member for member in _classes(module) if any(base.__module__ == FAMILY for base in member.__mro__[1:]))
    return any("model_type" in vars(family) for family in families)


def _classes(module: ModuleType) -> list[type]:
    return [kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__]


def import_plugin(name: str) -> ModuleType:
    """A module from the current folder or Python's path; ValueError if there is none, or its code fails."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"'{name}' is no module; write it as in an import, without .py: my_package.my_loss")
    here = Path.cwd()  # where Ray's workers look too; but files of a run folder are not run
    if str(here) not in sys.path and not RunFolder(here).config.is_file():
        sys.path.append(str(here))
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ValueError(f"{name} imports {error.name}, which is not installed") from None
        raise ValueError(
            f"there is no module {name} in {Path.cwd()} or on Python's path; run the command in the folder that holds "
            f"it, or put that folder on PYTHONPATH"
        ) from None
    except Exception as error:  # code of a user's own, which may raise anything
        raise ValueError(_explain(error, name)) from error


def find_code(path: str) -> Any:
    """What computes a kind of stream or loss, by `module:name`.

    Raises:
        ConfigError: a plug-in has no such thing.
    """
    try:
        return resolve_name(path)
    except (AttributeError, ImportError, ValueError) as error:
        raise ConfigError(f"plugins: there is no {path} ({error}).") from None


def _explain(error: Exception, name: str) -> str:
    """File and line of an error of a module's import, its name where Python gives neither (a null byte); the reason."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name == "<module>"]
    position = f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else name
    if not isinstance(error, SyntaxError):
        return f"{position}: {type(error).__name__}: {first_sentence(error)}".rstrip(".")
    return f"{error.filename}, line {error.lineno or 0}: {error.msg}" if error.filename else f"{position}: {error.msg}"


def _add(choice: type[Frozen], added: dict, of_package: Mapping[str, type[Frozen]]) -> str:
    kind = choice.model_fields["kind"].default
    other = of_package.get(kind) or added.get(kind, choice)
    if (other.__module__, other.__qualname__) != (choice.__module__, choice.__qualname__):
        raise ValueError(
            f"{choice.__module__}.{choice.__name__} is of kind '{kind}', as {other.__module__}.{other.__name__} is"
        )
    added[kind] = choice
    return kind
