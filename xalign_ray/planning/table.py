"""The plan of a recipe on several clusters side by side, as a table for a terminal, with what is assumed below it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import rich.box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from xalign_ray.config.load import Recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError
from xalign_ray.planning.counted import at_most
from xalign_ray.planning.describe import facts
from xalign_ray.planning.estimate import Estimate, estimate
from xalign_ray.planning.fit import GIB
from xalign_ray.planning.rate import find_rate
from xalign_ray.planning.shape import read_prices, read_shape
from xalign_ray.planning.subject import subject_of

DAY = 24  # hours
FIRST = "GiB of a worker"
NOT_COUNTED = (
    "Time is that of the operations, or what the host takes to start them where that is longer; communication, "
    "checkpoints and held-out losses come on top."
)


def compare(
    recipe: Recipe,
    on: Sequence[str],
    rate: str = "",
    prices: Sequence[str] = (),
    counted: RunConfig | None = None,
    width: int = 100,
) -> str:
    """What the recipe needs of each shape, a column each.

    Args:
        on: shapes, such as 8xH100.
        rate: TFLOP/s of a worker or a run that has them; assumed if empty.
        prices: of an hour of a device: `H100=2.5` or YAML files of such.
        counted: the recipe with the steps and rows that were counted from its data, where these are prepared.
        width: of the text.

    Raises:
        ConfigError: it fits none of the shapes, or an option cannot mean anything.
    """
    config, subject = counted or recipe.config, subject_of(recipe)
    if isinstance(subject, str):
        raise ConfigError(f"--on: parameters, and all that follows from them, are known with {subject}.")
    shapes = [read_shape(one) for one in dict.fromkeys(on)]
    measured, price = find_rate(rate, config, shapes), read_prices(prices)
    config = at_most(config)
    found = {str(shape): estimate(config, subject, shape, measured, price) for shape in shapes}
    refused = {shape: why for shape, why in found.items() if isinstance(why, str)}
    notes = [f"{shape}: {why}." for shape, why in refused.items()]
    fitting = {shape: one for shape, one in found.items() if isinstance(one, Estimate)}
    if not fitting:
        raise ConfigError(f"{recipe.name} cannot run on " + " ".join(notes))
    rates = {one.shape.name: one.rate for one in fitting.values()}
    notes += [f"{name}: {one.tflops:.3g} TFLOP/s a worker, {one.words}." for name, one in rates.items()]
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    table.add_column()
    for shape in found:
        table.add_column(Text(shape), justify="right")
    columns = [_column(one) if isinstance(one, Estimate) else {FIRST: "cannot run"} for one in found.values()]
    for name in dict.fromkeys(name for column in columns for name in column):
        table.add_row(name, *(column.get(name, "") for column in columns))
    head = facts(recipe, counted)
    space = max(map(len, head))
    lines = [Text(f"{name:<{space}}  {value}") for name, value in head.items()]
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(*lines, table, *map(Text, [*notes, NOT_COUNTED]), sep="\n")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def _column(one: Estimate) -> Mapping[str, str]:
    rows = -(-one.batch.global_rows // (one.batch.workers * one.batch.accumulation))
    device = one.shape.device
    room = f" of {device.memory_gib:.1f}" if device else ""
    said = {
        FIRST: f"{number(one.memory / GIB)}{room}",
        "rows of a worker": f"{one.batch.accumulation} x {rows}",
        "a step": duration(one.step_s / 3600),
        "all steps": "counted later" if one.hours is None else duration(one.hours),
        "device hours": "" if one.device_hours is None else number(one.device_hours),
        "CPU cores, feed": str(one.data_cores),
    }
    if one.price is not None:
        said["price"] = number(one.price)
    return said


def number(value: float) -> str:
    """A number with as many digits as show it."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def duration(hours: float) -> str:
    """A time in the unit that shows it."""
    if hours >= 2 * DAY:
        return f"{hours / DAY:,.1f} days"
    if hours >= 1:
        return f"{hours:.1f} h"
    seconds = 3600 * hours
    return (
        f"{seconds / 60:.1f} min"
        if seconds >= 60
        else f"{seconds:.1f} s"
        if seconds >= 1
        else f"{1e3 * seconds:.0f} ms"
    )
