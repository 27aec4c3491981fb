"""Whether a recipe fits a cluster, and in words what to change where it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pydantic import ValidationError

from xalign_ray.config.derive import derive_batch
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError
from xalign_ray.planning.memory import memory_of
from xalign_ray.planning.shape import Shape
from xalign_ray.planning.subject import Subject

USABLE = 0.85  # of a GPU's memory: plans are within 15 % of what is measured, and CUDA's own context is not in them
GIB = 2**30


def why_not(config: RunConfig, subject: Subject, shape: Shape) -> str:
    """Why a recipe cannot run on a shape, with what would help; empty where it can.

    Args:
        config: the recipe on the shape, its rows a step known.
    """
    rows, workers = config.train.global_batch_size, shape.workers
    if rows < workers:
        return f"a step has no more than {rows} rows, fewer than {workers} workers: take at most {rows} x {shape.name}"
    try:
        derive_batch(config)
    except ConfigError as error:
        return str(error).rstrip(".")
    needed = _needed(config, subject, shape)
    if needed <= _usable(shape):
        return ""
    said = f"a worker needs {needed / GIB:.1f} GiB, more than {_usable(shape) / GIB:.1f} ({USABLE:.0%} of its memory)"
    return f"{said}; {_remedies(config, subject, shape)}"


def _remedies(config: RunConfig, subject: Subject, shape: Shape) -> str:
    """Settings, each of which alone makes it fit; else all together; else more memory."""
    found = []
    kinds = (_smaller_batches, _checkpointed, _later_stages)
    for kind in kinds:
        fitting = (said for said, changed in kind(config) if _fits(changed, subject, shape))
        if said := next(fitting, None):
            found.append(said)
    if found:
        return f"it fits with {' or '.join(found)}"
    said, together = [], config
    for kind in kinds:
        if steps := [one for one in kind(together) if _can_run(one[1])]:
            name, together = steps[-1]
            said.append(name)
            if _fits(together, subject, shape):
                return f"it fits with {' and '.join(said)} together"
    return "no micro-batch, gradient checkpointing or ZeRO stage makes it fit: take devices with more memory"


Changes = Iterator[tuple[str, RunConfig]]


def _smaller_batches(config: RunConfig) -> Changes:
    rows = config.train.per_device_batch_size // 2
    while rows:
        yield f"train.per_device_batch_size={rows}", _changed(config, "train", per_device_batch_size=rows)
        rows //= 2


def _checkpointed(config: RunConfig) -> Changes:
    if not config.train.gradient_checkpointing:
        yield "train.gradient_checkpointing=true", _changed(config, "train", gradient_checkpointing=True)


def _later_stages(config: RunConfig) -> Changes:
    for stage in range(config.parallel.zero_stage + 1, 4):
        yield f"parallel.zero_stage={stage}", _changed(config, "parallel", zero_stage=stage)


def _changed(config: RunConfig, block: str, **update: Any) -> RunConfig:
    return config.model_copy(update={block: getattr(config, block).model_copy(update=update)})


def _fits(config: RunConfig, subject: Subject, shape: Shape) -> bool:
    return _can_run(config) and _needed(config, subject, shape) <= _usable(shape)


def _can_run(config: RunConfig) -> bool:
    """Whether the schema allows it (not every optimizer and loss works at every stage) and each worker has rows."""
    checks: tuple[Callable[[], Any], ...] = (
        lambda: RunConfig.model_validate(config.model_dump()),
        lambda: derive_batch(config),
    )
    try:
        for check in checks:
            check()
    except (ValidationError, ConfigError):
        return False
    return True


def _needed(config: RunConfig, subject: Subject, shape: Shape) -> float:
    return sum(memory_of(config, subject, shape.device is not None).values())


def _usable(shape: Shape) -> float:
    """Bytes; of a CPU it is not known."""
    return USABLE * shape.device.memory_gib * GIB if shape.device else float("inf")
