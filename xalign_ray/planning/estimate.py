"""What a recipe needs of a cluster: memory of a worker, time, CPU cores for the feed, money."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from xalign_ray.config.derive import FEED_CPUS, BatchSizes, derive_batch
from xalign_ray.config.schema import RunConfig
from xalign_ray.planning.figures import feed_rate, read_figures
from xalign_ray.planning.fit import why_not
from xalign_ray.planning.memory import memory_of
from xalign_ray.planning.rate import Rate, assumed_rate
from xalign_ray.planning.shape import Shape
from xalign_ray.planning.subject import Subject
from xalign_ray.planning.work import operations_of_row, started_passes, tokens_of_row


@dataclass(frozen=True)
class Estimate:
    """Of a recipe on a shape.

    Attributes:
        batch: how a step is cut.
        memory: bytes of a worker.
        step_s: seconds of a step.
        hours: of all steps; None where these are counted from data that are not there.
        data_cores: CPU cores that make rows as fast as they are trained on.
        price: of all devices for these hours; None where no price is given.
    """

    shape: Shape
    rate: Rate
    batch: BatchSizes
    memory: float
    step_s: float
    hours: float | None
    data_cores: int
    price: float | None

    @property
    def device_hours(self) -> float | None:
        """Hours of all devices together."""
        return None if self.hours is None else self.hours * self.shape.workers


def estimate(
    config: RunConfig, subject: Subject, shape: Shape, rate: Rate | None, prices: Mapping[str, float]
) -> Estimate | str:
    """What it needs, or why it cannot run there.

    A step on a GPU takes no less time than its host needs to start the operations. Communication, checkpoints and
    held-out losses take no time here.

    Args:
        config: the recipe, its rows a step known.
        rate: as measured; assumed if None.

    Raises:
        ConfigError: no rate is given, and none can be assumed of the device.
    """
    rate = rate or assumed_rate(config, shape)
    config = shape.applied(config)
    if refused := why_not(config, subject, shape):
        return refused
    batch = derive_batch(config)
    share = -(-batch.global_rows // batch.workers)  # of the worker that has most
    step_s = share * operations_of_row(config, subject) / (rate.tflops * 1e12)
    if shape.device:
        step_s = max(step_s, batch.accumulation * started_passes(config) * _host_s(subject))
    tokens_per_s = batch.global_rows * tokens_of_row(config) / step_s
    hours = config.train.max_steps * step_s / 3600 if config.train.max_steps else None
    price = prices.get(shape.name)
    return Estimate(
        shape=shape,
        rate=rate,
        batch=batch,
        memory=sum(memory_of(config, subject, shape.device is not None).values()),
        step_s=step_s,
        hours=hours,
        data_cores=max(FEED_CPUS, math.ceil(tokens_per_s / feed_rate(config))),
        price=None if price is None or hours is None else price * hours * shape.workers,
    )


def _host_s(subject: Subject) -> float:
    """Of a forward and backward pass."""
    return read_figures().host_s_per_layer * subject.values["num_hidden_layers"]
