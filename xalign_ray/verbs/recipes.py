"""The verbs of recipes and runs: `config`, `plan`, `prepare`, `pretrain`, `export`"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from xalign_ray.config.explain import differences
from xalign_ray.config.load import Recipe, described
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.verbs.arguments import (
    Local,
    Out,
    PathLike,
    RecipeName,
    Rehash,
    RunFolder,
    Settings,
    Trust,
    as_model,
    as_path,
    as_recipe,
)
from xalign_ray.verbs.command import keep_memory
from xalign_ray.verbs.opened_run import Run
from xalign_ray.work.status_line import say_next
from xalign_ray.work.storage import quoted


def config_list() -> list[str]:
    """The recipes and studies of the package, each with its description."""
    # A terminal's lines are wrapped; what is piped has a line for each, to be searched.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 1000
    shown = []
    for kind, descriptions in described().items():
        shown += [f"\n{kind}:" if shown else f"{kind}:"]
        column = max(map(len, descriptions)) + 4
        for name, description in descriptions.items():
            lines = textwrap.wrap(description, max(width - column, 20))
            shown += [f"  {name}".ljust(column) + f"\n{' ' * column}".join(lines)]
    return shown


def config_show(recipe: RecipeName, *settings: Settings) -> str:
    """A recipe, resolved."""
    return yaml.safe_dump(_tree(as_recipe(recipe, settings)), sort_keys=False, allow_unicode=True).rstrip("\n")


def config_check(recipe: RecipeName, *settings: Settings) -> list[str]:
    """Whether a recipe can be run here: its keys, and the files that it names; starts nothing."""
    from xalign_ray.checks import check_files, check_recipe

    loaded = as_recipe(recipe, settings)
    check_recipe(loaded)
    unseen = check_files(loaded)
    return [f"{recipe} is valid.", *filter(None, [unseen])]


def config_diff(left: RecipeName, right: RecipeName) -> list[str]:
    """The keys in which two recipes differ."""
    two = (_tree(as_recipe(recipe, ())) for recipe in (left, right))
    return [f"{key}: {a!r} -> {b!r}" for key, a, b in differences(*two)]


def config_schema() -> str:
    """JSON Schema of a recipe, for editors."""
    return json.dumps(RunConfig.model_json_schema(), indent=1)


def _tree(recipe: Recipe) -> dict[str, Any]:
    return recipe.config.model_dump(mode="json")


def plan(
    recipe: RecipeName,
    *settings: Settings,
    on: Annotated[str, typer.Option(metavar="SHAPE", help="a cluster such as 8xH100: time, cores and price too")] = "",
    rate: Annotated[
        float | PathLike,
        str,
        typer.Option(metavar="TFLOPS|RUN", help="train/tflops of a worker as measured, or a run that has measured it"),
    ] = "",
    prices: Annotated[
        Mapping[str, float] | Sequence[str] | None,
        list[str],
        typer.Option(
            "--price",
            metavar="DEVICE=NUMBER",
            help="of an hour of a device, such as H100=2.5",
        ),
    ] = (),
) -> str:
    """Say what a run will need, before anything is reserved: of its own workers, or of a cluster.

    Steps are counted from prepared data where they are there. Starts and writes nothing.

    Returns:
        The plan as text: parameters, operations, disk, memory, of a cluster also time and price.

    Raises:
        ConfigError: the recipe cannot be run, or does not fit the cluster.
    """
    loaded = as_recipe(recipe, settings)
    if not on and (rate or prices):
        raise ConfigError("--rate and --price are of a cluster: name it, as in --on 8xH100.")
    from xalign_ray.checks import check_recipe
    from xalign_ray.planning.describe import describe, describe_on
    from xalign_ray.work.mirror import local_folder

    check_recipe(loaded)
    counted = None
    if not loaded.config.train.is_counted and (local_folder(loaded.config.output) / "data").is_dir():
        from xalign_ray.tokens.stats import find_settled

        with suppress(DataError):
            counted = found[0].config if (found := find_settled(loaded)) else None
    if not on:
        return describe(loaded, counted)
    measured = as_model(rate) if isinstance(rate, str | os.PathLike) and rate else str(rate)
    of_an_hour = [f"{name}={price}" for name, price in prices.items()] if isinstance(prices, Mapping) else prices or ()
    return describe_on(loaded, on, measured, of_an_hour, counted)


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
    from xalign_ray import pretraining

    folder = pretraining.prepare(loaded, rehash=rehash).folder
    if not isinstance(recipe, Recipe):
        say_next(
            shlex.join(
                ["xalign", "pretrain", os.fspath(recipe), *(word for one in settings for word in ("--set", one))]
            )
        )
    return folder


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
    from xalign_ray import pretraining

    if local and not loaded.config.parallel.gpus_per_worker:
        keep_memory()
    run = pretraining.pretrain(loaded, as_path(out), local, trust, rehash)
    if os.environ.get("RANK", "0") == "0":
        say_next(f"xalign evaluate {quoted(run)} --task tatoeba --data FOLDER", f"xalign report {quoted(run)}")
    return Run(run)


def export(
    run: RunFolder,
    step: Annotated[int | None, typer.Option(help="of a kept checkpoint; 0 is the run's untrained control")] = None,
    out: Out = None,
    trust: Trust = False,
    as_: Annotated[
        str, typer.Option("--as", metavar="FORM", help="sentence-transformers: opened by SentenceTransformer(DIR)")
    ] = "",
    pooling: Annotated[
        str, typer.Option(metavar="NAME", help="of sentence vectors: mean or cls; default: as the run's loss pools")
    ] = "",
    prompt: Annotated[
        Sequence[str],
        list[str],
        typer.Option(metavar="NAME=TEXT", help="may be put before a sentence; the first is put there unasked"),
    ] = (),
    push_to: Annotated[
        str, typer.Option(metavar="ORG/NAME", help="upload the folder to this model of the Hugging Face hub")
    ] = "",
) -> Path:
    """Export a run's best checkpoint again (without dev pairs the newest), or the weights of another step.

    As `sentence-transformers` the folder is opened by transformers and by that package too; its vectors have length 1.

    Returns:
        The folder: `<run>/export` if none is named, for a step `<run>/export_step_<step>`.

    Raises:
        ConfigError: there is no such run, or an option cannot mean anything.
        DataError: there is no such checkpoint, or the run's folder is damaged.
        LockError: another process writes the folder, or has taken it over.
        TrackingError: the hub does not answer.
    """
    from xalign_ray import exports

    folder = exports.export(as_path(run), step, as_path(out), trust, as_, pooling, prompt, push_to)
    say_next(f"xalign evaluate {quoted(folder)} --task tatoeba --data FOLDER")
    return folder
