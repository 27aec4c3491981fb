"""Reads back the config.yaml of a run folder, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from xalign_ray.config.explain import check_folder, sentence_on
from xalign_ray.config.load import Recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.work.artifacts import finished_run
from xalign_ray.work.credentials import hide_credentials
from xalign_ray.work.file_checks import read_plain
from xalign_ray.work.run_folder import CONFIG, RunFolder

HINT = "Give the `xalign pretrain` of this run again: it writes the file anew."
_OF_A_RUN = ("recipe", "fingerprint", "data", "train", "track")  # the last one is written last


def read_saved(folder: Path) -> dict[str, Any]:
    """What config.yaml says: the `recipe`, `fingerprint` and tree of a run; empty if there is none.

    Raises:
        DataError: it is torn, empty or changed, or missing though the run has finished.
    """
    path = RunFolder(folder).config
    try:
        text = hide_credentials(read_plain(path))
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


def check_identity(folder: Path, fingerprint: str, plugins: Iterable[str]) -> None:
    """Refuses a folder that holds another run; a damaged config.yaml is written anew, since the manifest says it too.

    Args:
        plugins: the modules whose files are part of the fingerprint, for the message.

    Raises:
        ConfigError: the run in the folder has another fingerprint.
    """
    before: dict[str, Any] = {}
    with suppress(DataError):
        before = read_saved(folder)
    before = before or finished_run(folder) or {}
    if before and (other := str(before.get("fingerprint"))) != fingerprint:
        code = f" It includes the files of {', '.join(plugins)}." if plugins else ""
        raise ConfigError(
            f"{folder} holds a run of {before.get('recipe')} with fingerprint {other[:8]}; this recipe's is "
            f"{fingerprint[:8]}.{code} Give another --out, or remove the folder to start over."
        )


def earlier_runs(folder: Path) -> str:
    """Names of other runs of the same recipe next to a default run folder; empty once the folder holds a run."""
    if RunFolder(folder).config.is_file():
        return ""
    same = folder.parent.glob(f"{folder.name.rpartition('-')[0]}-{'[0-9a-f]' * 8}")
    return ", ".join(sorted(other.name for other in same if RunFolder(other).config.is_file()))


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
        raise DataError(f"{RunFolder(folder).config} is damaged: {sentence_on(where, first)}. {HINT}") from None
    return Recipe(saved["recipe"], config, {}), saved["fingerprint"]
