"""The verb `plan`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated

import typer

from xalign_ray.errors import ConfigError, DataError
from xalign_ray.verbs.arguments import PathLike, RecipeName, Settings, as_model, as_recipe


def plan(
    recipe: RecipeName,
    *settings: Settings,
    on: Annotated[
        Sequence[str],
        list[str],
        typer.Option(metavar="SHAPE", help="a cluster such as 8xH100; may be given more than once, a column each"),
    ] = (),
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
            metavar="DEVICE=NUMBER|FILE",
            help="of an hour of a device, such as H100=2.5; or a YAML file of such",
        ),
    ] = (),
) -> str:
    """Say what a run will need, before anything is reserved: of its own workers, or of clusters side by side.

    Steps are counted from prepared data where they are there. Starts and writes nothing.

    Returns:
        The plan as text: parameters, operations, disk, memory, of clusters also time and price.

    Raises:
        ConfigError: the recipe cannot be run, or fits none of the clusters.
    """
    loaded = as_recipe(recipe, settings)
    if not on and (rate or prices):
        raise ConfigError("--rate and --price are of a cluster: name one or more, as in --on 8xH100.")
    from xalign_ray.checks import check
    from xalign_ray.planning.describe import compare, describe
    from xalign_ray.work.mirror import local_folder

    check(loaded)
    counted = None
    if not loaded.config.train.is_counted and (local_folder(loaded.config.output) / "data").is_dir():
        from xalign_ray.data.stats import find_settled

        with suppress(DataError):
            counted = found[0].config if (found := find_settled(loaded)) else None
    if not on:
        return describe(loaded, counted)
    measured = as_model(rate) if isinstance(rate, str | os.PathLike) else str(rate)
    of_an_hour = [f"{name}={price}" for name, price in prices.items()] if isinstance(prices, Mapping) else prices or ()
    # A terminal's own width; what is piped is for a page.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
    return compare(loaded, on, measured, [as_model(price) for price in of_an_hour], counted, width)
