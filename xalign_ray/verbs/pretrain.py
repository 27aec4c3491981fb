"""The verb `pretrain`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from xalign_ray.verbs.arguments import Local, Out, RecipeName, Rehash, Settings, Trust, as_path, as_recipe
from xalign_ray.verbs.command import keep_memory
from xalign_ray.verbs.opened_run import Run
from xalign_ray.work.local_paths import quoted
from xalign_ray.work.status_line import say_next


def pretrain(
    recipe: RecipeName,
    *settings: Settings,
    out: Out = None,
    local: Local = False,
    profile: Annotated[
        int,
        typer.Option(min=0, metavar="STEPS", help="of so many steps write a trace and a summary: profile/ in the run"),
    ] = 0,
    trust: Trust = False,
    rehash: Rehash = False,
) -> Run:
    """Train a recipe, or go on with it, and export it as a Hugging Face folder.

    Makes the shards if they are not there, but for `local`. A finished run is only opened.

    Returns:
        The run; its folder is `<output>/<recipe>-<fingerprint>` if none is named.

    Raises:
        ConfigError: the recipe cannot be run, or `out` holds another run.
        DataError: input is missing, damaged, or worse than the recipe allows.
        TrainingError: training cannot go on.
        LockError: another process writes the folder, or has taken it over.
        KeyboardInterrupt: Ctrl-C, after the step in progress is saved; the same call goes on from there.
    """
    loaded = as_recipe(recipe, [*settings, *([f"track.profile_steps={profile}"] if profile else [])])
    from xalign_ray import pipeline

    if local and not loaded.config.parallel.gpus_per_worker:
        keep_memory()
    run = pipeline.pretrain(loaded, as_path(out), local, trust, rehash)
    if os.environ.get("RANK", "0") == "0":
        say_next(f"xalign evaluate {quoted(run)} --task tatoeba --data FOLDER", f"xalign report {quoted(run)}")
    return Run(run)
