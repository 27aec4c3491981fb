"""Reads a declared grid, by its name in the package or by path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from xalign_ray.config.explain import suggest_file
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import ConfigError


def read_declared(kind: str, name: str, folder: Path, hint: str = "") -> tuple[Path, dict[str, Any]]:
    """Path and tree of a YAML file.

    Args:
        kind: what it is, for messages.
        name: its name in `folder`, or a path.
        folder: of the package's own.
        hint: another way, for who meant that.

    Raises:
        ConfigError: there is no such file, or it holds no mapping.
    """
    path = next((path for path in (Path(name), folder / f"{name}.yaml") if path.is_file()), None)
    if path is None:
        known = sorted(found.relative_to(folder).with_suffix("").as_posix() for found in folder.rglob("*.yaml"))
        if scales := [one.removeprefix(f"{name}/") for one in known if one.startswith(f"{name}/")]:
            raise ConfigError(
                f"The {kind} '{name}' is there at several scales; add --scale with one of {', '.join(scales)}."
            )
        raise ConfigError(
            f"There is no {kind} '{name}', neither a file nor a name in the package.{suggest_file(name, known)} "
            f"The package has {', '.join(known) or 'none'}.{hint}"
        )
    try:
        tree = parse_yaml(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} must be a mapping of keys to values; it is a {type(tree).__name__}.")
    return path, tree
