"""Python values as verbs take them: paths, models, recipes, lists of names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import overload

from xalign_ray.config.load import Recipe, load_recipe
from xalign_ray.errors import ConfigError
from xalign_ray.work.storage import absolute_model, absolute_path

TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".xlsx", ".html", ".zip")  # a folder's name ends in none

PathLike = str | os.PathLike[str]


def filled(path: PathLike) -> str:
    """A path or name, unchanged; ConfigError for an empty one, which would be the current folder."""
    if not (written := os.fspath(path)).strip():
        raise ConfigError("A path is empty, as of a variable that is not set; `.` is the current folder.")
    return written


def filled_path(path: PathLike) -> Path:
    """Parser of paths on the command line."""
    return Path(filled(path))


def output_folder(path: PathLike) -> Path:
    """The value of `--out`; ConfigError for a file, before anything is read."""
    folder = filled_path(path)
    if not folder.is_dir() and (folder.is_file() or folder.suffix in TABLES):
        raise ConfigError(f"--out {path} is a file; name a folder to write in.")
    return folder


@overload
def as_path(path: PathLike) -> Path: ...
@overload
def as_path(path: PathLike | None) -> Path | None: ...
def as_path(path: PathLike | None) -> Path | None:
    """A file or folder as an absolute path, or the URL of one."""
    return None if path is None else absolute_path(filled_path(path))


def as_paths(paths: PathLike | Sequence[PathLike]) -> list[Path]:
    """One path or several, absolute."""
    return [absolute_path(filled_path(path)) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]


def as_data(data: PathLike) -> Path:
    """A task's files: an absolute path, a URL, or the snapshot of a Hugging Face data set.

    A data set is named by its id (org/name) and fetched if the hub's cache lacks it, or by its folder in the cache.
    """
    from xalign_ray.sources.hub import cached_snapshot, fetch_snapshot, is_hub_id

    path = as_path(data)
    if not path.exists() and is_hub_id(os.fspath(data)):
        return fetch_snapshot(os.fspath(data))
    return cached_snapshot(path)


def as_model(model: PathLike) -> str:
    """A model's folder as an absolute path; a hub id unchanged."""
    return absolute_model(filled(model))


def as_recipe(recipe: Recipe | PathLike, settings: Sequence[str]) -> Recipe:
    """A recipe that is loaded already, or is named and overridden by `key=value`."""
    if not isinstance(recipe, Recipe):
        return load_recipe(os.fspath(recipe), settings)
    if settings:
        raise ConfigError(f"{', '.join(settings)}: {recipe.name} is loaded already; give settings to load_recipe.")
    return recipe


def codes(languages: Sequence[str] | str | None) -> list[str]:
    """Several names, or one text that separates them by commas."""
    names = languages.split(",") if isinstance(languages, str) else languages or ()
    return [name for name in names if name]
