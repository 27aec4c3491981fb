"""The plan of a recipe as text: what was derived from it, and what a worker's memory must hold."""

from __future__ import annotations

import json

from xalign_ray.config.derive import deepspeed_config, derive_batch
from xalign_ray.config.load import Recipe
from xalign_ray.config.scheduled import Scheduled
from xalign_ray.config.schema import RunConfig
from xalign_ray.needs.counted import at_most
from xalign_ray.needs.memory import memory_of
from xalign_ray.needs.subject import subject_of

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
    lines = {
        "recipe": recipe.name,
        "languages": ", ".join(config.languages),
        "streams": ", ".join(stream.kind for stream in config.streams),
        "objectives": ", ".join(f"{_shown(one.weight)} {one.kind}" for one in config.objectives),
        "length": recipe.config.train.in_words,
        **_batch(config),
        "CPUs": f"{parallel.workers * parallel.cpus_per_worker:g} for training, at least 1 whole one for the feed",
        **_sizes(recipe, config),
    }
    if config.train.is_counted:
        lines["deepspeed"] = json.dumps(deepspeed_config(config, parallel.gpus_per_worker > 0))
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())


def _batch(config: RunConfig) -> dict[str, str]:
    """How a step is cut, as far as its rows are known."""
    if not config.train.is_counted:
        return {"steps": "`xalign prepare` counts the pairs that they follow from"}
    batch = derive_batch(config)
    tokens = batch.global_rows * config.data.max_seq_length
    return {
        "steps": f"{config.train.max_steps:,} of {batch.global_rows:,} rows = {tokens:,} token positions",
        "workers": f"{batch.workers} x {batch.accumulation} micro-steps, ZeRO {config.parallel.zero_stage}",
    }


def _sizes(recipe: Recipe, config: RunConfig) -> dict[str, str]:
    """Parameters, and the memory of a worker by part."""
    subject = subject_of(recipe)
    if isinstance(subject, str):
        return {"parameters": f"known with {subject}"}
    sizes, vocab_size = subject.sizes, subject.values["vocab_size"]
    losses = f"; losses: {subject.loss_parameters:,}" if subject.loss_parameters else ""
    parts = memory_of(at_most(config), subject, config.parallel.gpus_per_worker > 0)
    unit, name_of_unit = (GIB, "GiB") if sum(parts.values()) >= GIB else (MIB, "MiB")
    inside = ", ".join(f"{name} {size / unit:.2f}" for name, size in parts.items())
    return {
        "parameters": f"{sizes.total:,} (vocabulary {vocab_size:,}: {sizes.word_embeddings:,}{losses})",
        "memory": f"{sum(parts.values()) / unit:.2f} {name_of_unit} a worker: {inside}",
    }


def _shown(weight: Scheduled) -> str:
    """A weight, or the values that it moves through."""
    return " -> ".join(f"{value:g}" for _, value in weight) if isinstance(weight, tuple) else f"{weight:g}"
