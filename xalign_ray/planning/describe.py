"""The plan of a recipe as text: what was derived from it, what all its steps take, and what a worker must hold."""

from __future__ import annotations

import json
from collections.abc import Mapping

from xalign_ray.config.deciding import deciding_values
from xalign_ray.config.derive import deepspeed_config, derive_batch
from xalign_ray.config.load import Recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.planning.counted import at_most
from xalign_ray.planning.disk import run_bytes, shard_bytes_per_token
from xalign_ray.planning.figures import read_figures
from xalign_ray.planning.memory import memory_of
from xalign_ray.planning.subject import Subject, subject_of
from xalign_ray.planning.work import operations_of_row

MIB, GIB = 2**20, 2**30


def describe(recipe: Recipe, counted: RunConfig | None = None) -> str:
    """The plan as text, of the workers that the recipe names.

    Args:
        counted: the recipe with the steps and rows that were counted from its data, where these are prepared.

    Raises:
        ConfigError: when the batch cannot be cut as the recipe asks.
    """
    config = counted or recipe.config
    parallel = config.parallel
    lines = facts(recipe, counted)
    lines |= {
        **_workers(config),
        "CPUs": f"{parallel.workers * parallel.cpus_per_worker:g} for training, at least 1 whole one for the feed",
        **_memory(recipe, config),
    }
    if config.train.is_counted:
        lines["deepspeed"] = json.dumps(deepspeed_config(config, parallel.gpus_per_worker > 0))
    return as_text(lines)


def facts(recipe: Recipe, counted: RunConfig | None = None) -> dict[str, str]:
    """What of the plan does not depend on the cluster, by its name."""
    config = counted or recipe.config
    subject = subject_of(recipe)
    dropout = "" if isinstance(subject, str) else subject.family.dropout_in_words(subject.values)
    values = deciding_values(config, dropout or f"known with {subject}")
    return {
        "recipe": recipe.name,
        "languages": ", ".join(config.languages),
        "streams": ", ".join(stream.kind for stream in config.streams),
        "objectives": values.pop("losses"),
        **values,
        "length": recipe.config.train.in_words,
        "steps": _steps(config),
        **_sizes(recipe, config),
    }


def as_text(lines: Mapping[str, str]) -> str:
    """A line each, in two columns."""
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())


def _steps(config: RunConfig) -> str:
    if not config.train.is_counted:
        return "`xalign prepare` counts the pairs that they follow from"
    rows = config.train.global_batch_size
    return f"{config.train.max_steps:,} of {rows:,} rows = {rows * config.data.max_seq_length:,} token positions"


def _workers(config: RunConfig) -> dict[str, str]:
    """How a step is cut, as far as its rows are known."""
    if not config.train.is_counted:
        return {}
    batch = derive_batch(config)
    return {"workers": f"{batch.workers} x {batch.accumulation} micro-steps, ZeRO {config.parallel.zero_stage}"}


def _sizes(recipe: Recipe, config: RunConfig) -> dict[str, str]:
    """Parameters, operations, and what a run writes."""
    subject = subject_of(recipe)
    if isinstance(subject, str):
        return {"parameters": f"known with {subject}"}
    sizes, vocab_size = subject.sizes, subject.values["vocab_size"]
    losses = f"; losses: {subject.loss_parameters:,}" if subject.loss_parameters else ""
    shards = ", ".join(f"{size:g} bytes a token of {kind}" for kind, size in shard_bytes_per_token(config).items())
    return {
        "parameters": f"{sizes.total:,} (vocabulary {vocab_size:,}: {sizes.word_embeddings:,}{losses})",
        "operations": _operations(config, subject),
        "disk": f"{in_bytes(run_bytes(config, subject))} for checkpoints and the export; shards: {shards}",
    }


def _operations(config: RunConfig, subject: Subject) -> str:
    """Of a step and of all, as far as these are known."""
    limited = at_most(config)
    is_most = "" if config.train.is_counted else "at most "
    step = limited.train.global_batch_size * operations_of_row(limited, subject)
    steps = limited.train.max_steps
    return f"{is_most}{step:.2e} a step" + (f", {steps * step:.2e} in {steps:,} steps" if steps else "")


def _memory(recipe: Recipe, config: RunConfig) -> dict[str, str]:
    """The memory of a worker by part: its tensors, and on a CPU what its process takes beside them."""
    subject = subject_of(recipe)
    if isinstance(subject, str):
        return {}
    parts = memory_of(at_most(config), subject, config.parallel.gpus_per_worker > 0)
    unit, name_of_unit = (GIB, "GiB") if sum(parts.values()) >= GIB else (MIB, "MiB")
    inside = ", ".join(f"{name} {size / unit:.2f}" for name, size in parts.items())
    lines = {"memory": f"{sum(parts.values()) / unit:.2f} {name_of_unit} a worker: {inside}"}
    if not config.parallel.gpus_per_worker:
        process = in_bytes(read_figures().process_bytes_on_cpu)
        lines["process"] = f"at least {process} more a worker: Python, its libraries, and freed memory that is kept"
    return lines


def in_bytes(size: float) -> str:
    """So many bytes in the unit that shows them."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.1f} MiB"
