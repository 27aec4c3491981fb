"""Reads back the config.yaml of a run folder, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from xalign_ray.artifacts import finished_run
from xalign_ray.config.explain import check_folder
from xalign_ray.config.load import Recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.credentials import hide_credentials
from xalign_ray.errors import DataError
from xalign_ray.run_folder import CONFIG, RunFolder

HINT = "Give the `xalign pretrain` of this run again: it writes the file anew."
_OF_A_RUN = ("recipe", "fingerprint", "data", "train", "track")  # the last one is written last


def read_saved(folder: Path) -> dict[str, Any]:
    """What config.yaml says: the `recipe`, `fingerprint` and tree of a run; empty if there is none.

    Raises:
        DataError: it is torn, empty or changed, or missing though the run has finished.
    """
    path = RunFolder(folder).config
    try:
        text = hide_credentials(path.read_text(encoding="utf-8"))
        tree = parse_yaml(text)
    except FileNotFoundError:
        if finished_run(folder):
            raise DataError(f"{path} is missing. {HINT}") from None
        return {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is damaged: {error}. {HINT}") from None
    if not isinstance(tree, dict) or not tree or not text.endswith("\n"):
        raise DataError(f"{path} is damaged: it is no whole tree of keys. {HINT}")
    if any(key in tree for key in _OF_A_RUN[:2]) and (missing := [key for key in _OF_A_RUN if key not in tree]):
        raise DataError(f"{path} is damaged: it lacks {', '.join(missing)}. {HINT}")
    return tree


def open_saved(folder: Path) -> tuple[Recipe, str]:
    """The recipe of a run folder, and the run's fingerprint.

    Raises:
        ConfigError: there is no such folder.
        DataError: it has no config.yaml, or one that is damaged or of another version.
    """
    check_folder(folder)
    saved = read_saved(folder)
    if "recipe" not in saved:
        raise DataError(f"{folder} is not a run folder: it has no {CONFIG} of a run.")
    try:
        config = RunConfig.model_validate({key: saved[key] for key in saved if key not in ("recipe", "fingerprint")})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"{RunFolder(folder).config} is damaged: {where}: {first['msg']}. {HINT}") from None
    return Recipe(saved["recipe"], config, {}), saved["fingerprint"]
