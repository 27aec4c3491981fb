"""The verb `prepare`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from xalign_ray.config.load import Recipe
from xalign_ray.verbs.arguments import RecipeName, Rehash, Settings, as_recipe
from xalign_ray.work.status_line import say_next


def prepare(recipe: RecipeName, *settings: Settings, rehash: Rehash = False) -> Path:
    """Make the token shards of a recipe, or check and repair those that exist.

    Returns:
        The folder of shards.

    Raises:
        ConfigError: the recipe cannot be run.
        DataError: input is missing, damaged, or worse than the recipe allows.
        LockError: another process writes the folder, or has taken it over.
    """
    loaded = as_recipe(recipe, settings)
    from xalign_ray import pipeline

    folder = pipeline.prepare(loaded, rehash=rehash).folder
    if not isinstance(recipe, Recipe):
        say_next(
            shlex.join(
                ["xalign", "pretrain", os.fspath(recipe), *(word for one in settings for word in ("--set", one))]
            )
        )
    return folder
