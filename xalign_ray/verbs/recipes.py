"""The Python API of recipes and runs: `plan`, `prepare`, `pretrain`, `export`"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from xalign_ray.config.load import Recipe
from xalign_ray.config.schema import DEMO
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.verbs.arguments import PathLike, as_model, as_path, as_recipe
from xalign_ray.verbs.opened_run import Run
from xalign_ray.work.status_line import say_next
from xalign_ray.work.storage import quoted


def plan(
    recipe: Recipe | PathLike,
    *settings: str,
    on: str = "",
    rate: float | PathLike = "",
    prices: Mapping[str, float] | Sequence[str] | None = (),
) -> str:
    """The resources that a run needs on its own workers, or on a cluster. Starts and writes nothing.

    Steps are counted from prepared data where they are there.

    Args:
        recipe: a loaded recipe, a name (`xalign config list`) or a YAML file.
        settings: `key=value` each, overrides of keys of the recipe.
        on: a cluster such as "8xH100"; the plan then has time, cores and price too.
        rate: TFLOP/s of a worker as measured (`train/tflops`), or a run that has measured it.
        prices: of an hour of a device, such as {"H100": 2.5} or ["H100=2.5"].

    Returns:
        The plan as text: parameters, operations, disk, memory, of a cluster also time and price.

    Raises:
        ConfigError: the recipe cannot be run, or does not fit the cluster.
    """
    loaded = as_recipe(recipe, settings)
    if not on and (rate or prices):
        raise ConfigError("--rate and --price are of a cluster: name it, as in --on 8xH100.")
    from xalign_ray.checks import check_recipe
    from xalign_ray.planning.describe import describe
    from xalign_ray.work.mirror import local_folder

    check_recipe(loaded)
    counted = None
    if not loaded.config.train.is_counted and (local_folder(loaded.config.output) / "data").is_dir():
        from xalign_ray.tokens.stats import find_settled

        with suppress(DataError):
            counted = settled[0].config if (settled := find_settled(loaded)) else None
    if not on:
        return describe(loaded, counted)
    measured = as_model(rate) if isinstance(rate, str | os.PathLike) and rate else str(rate)
    of_an_hour = [f"{name}={price}" for name, price in prices.items()] if isinstance(prices, Mapping) else prices or ()
    return describe(loaded, counted, on, measured, of_an_hour)


def prepare(recipe: Recipe | PathLike, *settings: str, rehash: bool = False) -> Path:
    """Makes the token shards of a recipe, or checks and repairs those that exist.

    Args:
        recipe: a loaded recipe, a name (`xalign config list`) or a YAML file.
        settings: `key=value` each, overrides of keys of the recipe.
        rehash: read all inputs again instead of trusting cached hashes.

    Returns:
        The folder of shards.

    Raises:
        ConfigError: the recipe cannot be run.
        DataError: input is missing, damaged, or worse than the recipe allows.
        LockError: another process writes the folder, or has taken it over.
    """
    loaded = as_recipe(recipe, settings)
    from xalign_ray.pretraining import prepare as make_shards

    _write_world(loaded)
    folder = make_shards(loaded, rehash=rehash).folder
    if not isinstance(recipe, Recipe):
        options = [word for setting in settings for word in ("--set", setting)]
        say_next(shlex.join(["xalign", "pretrain", os.fspath(recipe), *options]))
    return folder


def pretrain(
    recipe: Recipe | PathLike,
    *settings: str,
    out: PathLike | None = None,
    local: bool = False,
    profile: int = 0,
    trust: bool = False,
    rehash: bool = False,
) -> Run:
    """Trains a recipe, resuming an interrupted run, and exports the encoder as a Hugging Face folder.

    Makes the shards if they are not there, but for `local`. A finished run is only opened.

    Args:
        recipe: a loaded recipe, a name (`xalign config list`) or a YAML file.
        settings: `key=value` each, overrides of keys of the recipe.
        out: the run folder; `<output>/<recipe>-<fingerprint>` if not given.
        local: train without Ray, in this process or under torchrun.
        profile: profile this many steps; trace and summary go to profile/ in the run.
        trust: load checkpoint files that can run code: only those of people you trust.
        rehash: read all inputs again instead of trusting cached hashes.

    Returns:
        The run.

    Raises:
        ConfigError: the recipe cannot be run, or `out` holds another run.
        DataError: input is missing, damaged, or worse than the recipe allows.
        TrainingError: training cannot go on.
        LockError: another process writes the folder, or has taken it over.
        KeyboardInterrupt: Ctrl-C, after the step in progress is saved; the same call goes on from there.
    """
    loaded = as_recipe(recipe, [*settings, *([f"track.profile_steps={profile}"] if profile else [])])
    from xalign_ray.pretraining import pretrain as train_recipe

    _write_world(loaded)
    run = train_recipe(loaded, as_path(out), local, trust, rehash)
    say_next(f"xalign evaluate {quoted(run)} --task tatoeba --data FOLDER", f"xalign report {quoted(run)}")
    return Run(run)


def export(
    run: PathLike,
    step: int | None = None,
    out: PathLike | None = None,
    trust: bool = False,
    as_: str = "",
    pooling: str = "",
    prompt: Sequence[str] = (),
    push_to: str = "",
    merge: float | None = None,
) -> Path:
    """Exports a run's best checkpoint again (without dev pairs the newest), or the weights of another step.

    As "sentence-transformers" the folder is opened by transformers and by that package too; its vectors have length 1.

    Args:
        run: the folder of a run.
        step: of a kept checkpoint; 0 is the run's untrained control.
        out: `<run>/export` if not given, for a step `<run>/export_step_<step>`.
        trust: load checkpoint files that can run code: only those of people you trust.
        as_: "sentence-transformers" for a folder that `SentenceTransformer(DIR)` opens.
        pooling: of sentence vectors: "mean", "cls" or "lasttoken"; by default as the run's loss pools.
        prompt: `NAME=TEXT` each, texts that may be put before a sentence; the first is put there unasked.
        push_to: `ORG/NAME`: uploads the folder to this model of the Hugging Face hub.
        merge: share from 0 to 1 of these weights in a mixture with those that the run began with; needs `out`.

    Returns:
        The folder.

    Raises:
        ConfigError: there is no such run, or an option cannot mean anything.
        DataError: there is no such checkpoint, or the run's folder is damaged.
        LockError: another process writes the folder, or has taken it over.
        TrackingError: the hub does not answer.
    """
    from xalign_ray.exports import export as export_folder

    folder = export_folder(as_path(run), step, as_path(out), trust, as_, pooling, prompt, push_to, merge)
    say_next(f"xalign evaluate {quoted(folder)} --task tatoeba --data FOLDER")
    return folder


def _write_world(recipe: Recipe) -> None:
    """Writes the embedded world where the recipe reads it, and can be run."""
    from xalign_ray.checks import check_recipe
    from xalign_ray.config.derive import base_recipe
    from xalign_ray.demo.first_use import open_world
    from xalign_ray.models.refusals import check_start
    from xalign_ray.work.mirror import local_folder

    if recipe.config.data.root == DEMO:
        check_recipe(recipe, warn=False)
        if recipe.config.model.init_from and not base_recipe(recipe):
            check_start(recipe.config)
        open_world(local_folder(recipe.config.output))
