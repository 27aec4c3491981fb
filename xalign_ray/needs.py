"""What a run will need, from the recipe alone: parameters, batch, memory, DeepSpeed. Imports neither torch nor Ray."""

from __future__ import annotations

import json

from xalign_ray.config.derive import deepspeed_config, derive_batch
from xalign_ray.config.load import Recipe
from xalign_ray.config.scheduled import Scheduled
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.start import base_recipe
from xalign_ray.config.tokenizers import BpeTokenizer
from xalign_ray.models.sizes import count_parameters

GIB = 2**30
FP32, BF16 = 4, 2


def describe(recipe: Recipe, counted: RunConfig | None = None) -> str:
    """The plan as text: what was derived from the recipe, and what a worker's memory must hold.

    Args:
        counted: the recipe with the steps and rows that were counted from its data, where these are prepared.

    Raises:
        ConfigError: when the batch cannot be cut as the recipe asks.
    """
    config = counted or recipe.config
    parallel = config.parallel
    base = base_recipe(recipe)
    start = base.config if base else config
    lines = {
        "recipe": recipe.name,
        "languages": ", ".join(config.languages),
        "streams": ", ".join(stream.kind for stream in config.streams),
        "objectives": ", ".join(f"{_shown(one.weight)} {one.kind}" for one in config.objectives),
        "length": recipe.config.train.in_words,
        **_batch(config),
        "CPUs": f"{parallel.workers * parallel.cpus_per_worker:g} for training, at least 1 whole one for the feed",
    }
    if isinstance(start.data.tokenizer, BpeTokenizer) and start.model.init_from is None:
        vocab_size = start.data.tokenizer.vocab_size
        sizes = count_parameters(start.model, vocab_size, len(config.languages), config.data.max_seq_length)
        lines["parameters"] = f"{sizes.total:,} (vocabulary {vocab_size:,}: {sizes.word_embeddings:,})"
        lines["memory"] = f"{state_bytes(config, sizes.total) / GIB:.2f} GiB a worker for weights, gradients and Adam"
    else:
        lines["parameters"] = "known when the given tokenizer or model is opened"
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


def _shown(weight: Scheduled) -> str:
    """A weight, or the values that it moves through."""
    return " -> ".join(f"{value:g}" for _, value in weight) if isinstance(weight, tuple) else f"{weight:g}"


def state_bytes(config: RunConfig, parameters: int) -> float:
    """Bytes a worker holds for weights, gradients and optimizer states; activations come on top.

    Partitioning as in ZeRO (Rajbhandari et al. 2020, section 3.1): stage 1 splits Adam's states and the fp32 master
    weights, 2 also the gradients, 3 also the weights.
    """
    workers, stage = config.parallel.workers, config.parallel.zero_stage
    unit = BF16 if config.train.bf16 else FP32
    master = FP32 if config.train.bf16 else 0
    weights, gradients, states = unit, unit, 2 * FP32 + master
    if config.train.bf16 and stage == 0:  # autocast: all in fp32, and bf16 copies of the weights
        weights, gradients, states = FP32 + BF16, FP32, 2 * FP32
    return parameters * (
        weights / (workers if stage >= 3 else 1)
        + gradients / (workers if stage >= 2 else 1)
        + states / (workers if stage >= 1 else 1)
    )
