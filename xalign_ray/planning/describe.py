"""The plan of a recipe as text, on the workers that it names or on another cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from xalign_ray.config.derive import deciding_values, deepspeed_config, derive_batch
from xalign_ray.config.load import Recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.sources import TrimTokenizer
from xalign_ray.errors import ConfigError
from xalign_ray.planning.estimate import GIB, estimate, find_rate, operations_of_row, read_prices, read_shape
from xalign_ray.planning.memory import host_memory_of, memory_of, run_bytes, shard_bytes_per_token
from xalign_ray.planning.subject import Subject, at_most, subject_of

MIB = 2**20
DAY = 24  # hours
LISTED, FIRST_OF_MANY = 150, 20  # languages that are all named, and how many of more
NOT_COUNTED = (
    "Time is that of the operations, or what the host takes to start them where that is longer; communication, "
    "checkpoints and held-out losses come on top."
)


def describe(
    recipe: Recipe, counted: RunConfig | None = None, on: str = "", rate: str = "", prices: Sequence[str] = ()
) -> str:
    """The plan as text, of the workers that the recipe names or of a cluster, with its time and price.

    Args:
        counted: the recipe with the steps and rows that were counted from its data, where these are prepared.
        on: a cluster, such as 8xH100.
        rate: TFLOP/s of a worker or a run that has them; assumed if empty.
        prices: of an hour of a device: `H100=2.5`.

    Raises:
        ConfigError: the batch cannot be cut as the recipe asks, it does not fit the cluster, or an option cannot mean
            anything.
    """
    config, subject = counted or recipe.config, subject_of(recipe)
    parallel, lines = config.parallel, _facts(recipe, config, subject)
    if on:
        if isinstance(subject, str):
            raise ConfigError(f"--on: parameters, and all that follows from them, are known with {subject}.")
        return f"{_as_text(lines | _on_cluster(recipe.name, subject, config, on, rate, prices))}\n{NOT_COUNTED}"
    if config.train.is_counted:
        batch = derive_batch(config)
        lines["workers"] = f"{batch.workers} x {batch.accumulation} micro-steps, ZeRO {parallel.zero_stage}"
    lines["CPUs"] = f"{parallel.workers * parallel.cpus_per_worker:g} for training, at least 1 whole one for the feed"
    if not isinstance(subject, str):
        lines |= _memory(subject, config)
    if config.train.is_counted:
        lines["deepspeed"] = json.dumps(deepspeed_config(config, parallel.gpus_per_worker > 0))
    return _as_text(lines)


def _on_cluster(
    recipe: str, subject: Subject, config: RunConfig, on: str, rate: str, prices: Sequence[str]
) -> dict[str, str]:
    shape, of_hour = read_shape(on), read_prices(prices)
    cost = estimate(at_most(config), subject, shape, find_rate(rate, config, shape))
    if isinstance(cost, str):
        raise ConfigError(f"{recipe} cannot run on {shape}: {cost}.")
    rows = -(-cost.batch.global_rows // (cost.batch.workers * cost.batch.accumulation))
    hours = cost.device_hours
    room = f" of {shape.device.memory_gib:.1f}" if shape.device else ""
    return {
        "on": f"{shape}, {cost.rate.tflops:.3g} TFLOP/s a worker, {cost.rate.words}",
        "memory": f"{number(cost.memory / GIB)}{room} GiB a worker",
        "rows of a worker": f"{cost.batch.accumulation} x {rows}",
        "a step": duration(cost.step_s / 3600),
        "all steps": "counted later" if cost.hours is None else duration(cost.hours),
        "device hours": "counted later" if hours is None else number(hours),
        "CPU cores, feed": str(cost.data_cores),
        **({"price": number(of_hour[shape.name] * hours)} if hours is not None and shape.name in of_hour else {}),
    }


def _facts(recipe: Recipe, config: RunConfig, subject: Subject | str) -> dict[str, str]:
    """What of the plan does not depend on the cluster, by its name."""
    if isinstance(subject, str):
        dropout = f"known with {subject}"
        sizes = {"parameters": dropout}
    else:
        dropout, sizes = subject.family.dropout_in_words(subject.values), _sizes(subject, config)
    values = deciding_values(config, dropout)
    return {
        "recipe": recipe.name,
        "languages": _languages(config.languages),
        "streams": ", ".join(dict.fromkeys(stream.kind for stream in config.streams)),
        "objectives": values.pop("losses"),
        **values,
        "length": recipe.config.train.in_words,
        "steps": _steps(config),
        **sizes,
    }


def _as_text(lines: Mapping[str, str]) -> str:
    """A line each, in two columns."""
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())


def _steps(config: RunConfig) -> str:
    if not config.train.is_counted:
        return "`xalign prepare` counts the pairs that they follow from"
    rows = config.train.global_batch_size
    return f"{config.train.max_steps:,} of {rows:,} rows = {rows * config.data.max_seq_length:,} token positions"


def _languages(languages: Sequence[str]) -> str:
    if len(languages) <= LISTED:
        return ", ".join(languages)
    return f"{len(languages):,}, among them {', '.join(languages[:FIRST_OF_MANY])}"


def _sizes(subject: Subject, config: RunConfig) -> dict[str, str]:
    """Parameters, operations of a step and of all as far as these are known, and disk space."""
    sizes, vocab_size = subject.sizes, subject.values["vocab_size"]
    trimmed = "at most " if isinstance(config.data.tokenizer, TrimTokenizer) else ""
    losses = f"; losses: {subject.loss_parameters:,}" if subject.loss_parameters else ""
    losses += f"; adapters, which alone are trained: {sizes.adapters:,}" if sizes.adapters else ""
    limited, is_most = at_most(config), "" if config.train.is_counted else "at most "
    steps, step = limited.train.max_steps, limited.train.global_batch_size * operations_of_row(limited, subject)
    shards = ", ".join(f"{size:g} bytes a token of {kind}" for kind, size in shard_bytes_per_token(config).items())
    return {
        "parameters": f"{sizes.total:,} (vocabulary {trimmed}{vocab_size:,}: {sizes.word_embeddings:,}{losses})",
        "operations": f"{is_most}{step:.2e} a step" + (f", {steps * step:.2e} in {steps:,} steps" if steps else ""),
        "disk": f"{in_bytes(run_bytes(config, subject))} for checkpoints and the export; shards: {shards}",
    }


def _memory(subject: Subject, config: RunConfig) -> dict[str, str]:
    """The memory of a worker by part: its tensors, and on a CPU the rest of its process."""
    on_gpu = config.parallel.gpus_per_worker > 0
    config = at_most(config)
    parts = memory_of(config, subject, on_gpu)
    unit, name_of_unit = (GIB, "GiB") if sum(parts.values()) >= GIB else (MIB, "MiB")
    inside = ", ".join(f"{name} {size / unit:.2f}" for name, size in parts.items())
    lines = {"memory": f"{sum(parts.values()) / unit:.2f} {name_of_unit} a worker: {inside}"}
    if not on_gpu:
        host = host_memory_of(config, subject)
        shown = ", ".join(f"{name} {in_bytes(size)}" for name, size in host.items())
        lines["in all"] = f"{in_bytes(sum(host.values()))} of the machine's memory: {shown}"
    return lines


def in_bytes(size: float) -> str:
    """Bytes in a readable unit."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.1f} MiB"


def number(value: float) -> str:
    """A number with as many digits as show it."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def duration(hours: float) -> str:
    """A time in the unit that shows it."""
    if hours >= 2 * DAY:
        return f"{hours / DAY:,.1f} days"
    if hours >= 1:
        return f"{hours:.1f} h"
    if (seconds := 3600 * hours) >= 60:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms"
