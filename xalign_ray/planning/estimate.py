"""Cost of a recipe on a cluster, and whether it fits: memory of a worker, time, CPU cores for the feed, money."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from xalign_ray.config.choices import CodeSwitchedCopy, ContrastedPairs, Stream
from xalign_ray.config.derive import FEED_CPUS, BatchSizes, derive_batch
from xalign_ray.config.explain import suggest
from xalign_ray.config.fields import Scheduled, value_at
from xalign_ray.config.saved import open_saved
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError
from xalign_ray.models.sizes import TRAINED, Operations
from xalign_ray.planning.memory import encoded_passes, memory_of
from xalign_ray.planning.subject import Subject, feed_rate, read_figures, shares
from xalign_ray.track.events import read_events
from xalign_ray.train.devices import Device, known_devices, precision_of
from xalign_ray.work.mirror import opened
from xalign_ray.work.run_folder import RunFolder

CPU = "CPU"  # nothing is known of it beforehand: neither speed nor memory
_WRITTEN = re.compile(r"(\d+) ?x ?(.+)", re.IGNORECASE)
_SAMPLES = 1000  # steps at which a number is looked at that changes over the steps
USABLE = 0.85  # of a GPU's memory: plans are within 15 % of measurements, and CUDA's own context is not in them
GIB = 2**30


@dataclass(frozen=True)
class Shape:
    """A number of training processes, each with a device of that name."""

    workers: int
    name: str

    def __str__(self) -> str:
        return f"{self.workers} x {self.name}"

    @property
    def device(self) -> Device | None:
        """Its speed and memory; None of a CPU."""
        return known_devices().get(self.name)

    def applied(self, config: RunConfig) -> RunConfig:
        """The recipe on it."""
        parallel = {"workers": self.workers, "gpus_per_worker": int(self.name != CPU)}
        return config.model_copy(update={"parallel": config.parallel.model_copy(update=parallel)})


def read_shape(written: str) -> Shape:
    """A shape, as in `--on 8xH100`.

    Raises:
        ConfigError: it is none, or of a device that is not known.
    """
    parts = _WRITTEN.fullmatch(written.strip())
    if not parts or int(parts[1]) < 1:
        raise ConfigError(f"--on {written}: a number of devices and their name is expected, as in --on 8xH100.")
    return Shape(int(parts[1]), _known(parts[2], f"--on {written}"))


def read_prices(given: Sequence[str]) -> dict[str, float]:
    """Prices of an hour of a device, each `H100=2.5`.

    Raises:
        ConfigError: one is not a number, or of a device that is not known.
    """
    prices: dict[str, float] = {}
    for written in given:
        name, _, text = written.partition("=")
        try:
            price = float(text)
        except ValueError:
            price = -1.0
        if not 0 <= price < float("inf"):
            raise ConfigError(f"--price {written}: write a device and a number, as in H100=2.5.")
        prices[_known(name, f"--price {written}")] = price
    return prices


def _known(name: str, where: str) -> str:
    names = {device.lower(): device for device in (*known_devices(), CPU)}
    plain = name.strip().replace("-", " ").lower()
    if plain not in names:
        hint = suggest(name, names.values())
        raise ConfigError(f"{where}: nothing is known of a {name}.{hint} Known: {', '.join(names.values())}.")
    return names[plain]


def tokens_of_row(config: RunConfig) -> float:
    """Tokens of a row, on average over the streams."""
    return sum(share * _tokens(config, stream) for stream, share in zip(config.streams, shares(config), strict=True))


def operations_of_row(config: RunConfig, subject: Subject) -> float:
    """Of a row, on average over the streams and the steps, forward and backward.

    What `models/sizes.py` leaves out is left out. Attention is counted as of rows of one example, and all labels
    of aligned pairs as aligned: at most so much.
    """
    operations = Operations(subject.family, subject.values, config.model.conditioned_head)
    masked = mean_over_steps(config.masking.mlm_probability, config.train.max_steps)
    encoded = encoded_passes(config)
    total = 0.0
    for stream, share in zip(config.streams, shares(config), strict=True):
        tokens = _tokens(config, stream)
        for name, passes in encoded.items():
            if not name:
                total += share * passes * operations.forward(np.array([tokens]))
            elif isinstance(stream, ContrastedPairs):
                total += share * passes * operations.forward(np.array([tokens // 2]))
        labelled = not isinstance(stream, ContrastedPairs) or stream.text != "none"
        heads = sum(loss.predicts_pieces and loss.stream in (None, stream.kind) for loss in config.objectives)
        total += share * labelled * heads * operations.of_labels(masked * tokens)
    return total


def started_passes(config: RunConfig) -> float:
    """Forward and backward passes of a micro-step, however few tokens they are of."""
    return sum(encoded_passes(config).values()) / TRAINED


def mean_over_steps(scheduled: Scheduled, steps: int) -> float:
    """The mean of a number that may change over the steps of a run."""
    places = np.linspace(0, max(0, steps - 1), min(max(1, steps), _SAMPLES))
    return float(np.mean([value_at(scheduled, int(step)) for step in places]))


def _tokens(config: RunConfig, stream: Stream) -> int:
    """What prepare fills of a row, which copies double to the whole of it."""
    return config.data.max_seq_length if isinstance(stream, CodeSwitchedCopy) else config.data.capacity


@dataclass(frozen=True)
class Rate:
    """TFLOP/s of a worker as `train/tflops` counts them, and in words where they are from."""

    tflops: float
    words: str


def find_rate(given: str, config: RunConfig, shape: Shape) -> Rate | None:
    """A rate that was measured: a number of TFLOP/s, or a run whose event log has it; None where nothing is given.

    Raises:
        ConfigError: it is neither, or the run was another kind of computing.
        DataError: the run's files are damaged.
    """
    if not given:
        return None
    try:
        tflops = float(given)
    except ValueError:
        return _of_run(given, config, shape)
    if not 0 < tflops < float("inf"):
        raise ConfigError(f"--rate {given}: TFLOP/s of a worker are more than 0.")
    return Rate(tflops, "as given by --rate")


def assumed_rate(config: RunConfig, shape: Shape) -> Rate:
    """The assumed share of a GPU's peak.

    Raises:
        ConfigError: nothing is assumed of a CPU.
    """
    if shape.device is None:
        raise ConfigError(
            f"--on {shape}: how fast a CPU computes is known by measuring only; give --rate the TFLOP/s of a worker, "
            "or a run on it, whose train/tflops says it."
        )
    share, precision = read_figures().assumed_mfu, precision_of(config.train)
    peak = shape.device.peak(precision)
    return Rate(share * peak, f"assumed, not measured: {share:g} of the peak in {precision}, {peak:g} TFLOP/s")


def _of_run(given: str, config: RunConfig, shape: Shape) -> Rate:
    folder = RunFolder(opened(given))
    if not folder.events.is_file():
        raise ConfigError(f"--rate {given}: neither a number of TFLOP/s nor the folder of a run: it has no event log.")
    run, on_gpus = open_saved(folder.path)[0].config, shape.name != CPU
    if (run.parallel.gpus_per_worker > 0) != on_gpus:
        raise ConfigError(f"--rate {given}: the run was on {'CPUs' if on_gpus else 'GPUs'}, and --on is {shape}.")
    if on_gpus and (was := precision_of(run.train)) != (now := precision_of(config.train)):
        raise ConfigError(f"--rate {given}: the run was in {was}, and the recipe is in {now} (train.bf16, train.tf32).")
    steps = [event["metrics"] for event in read_events(folder.events) if event["event"] == "step"]
    measured = [metrics["train/tflops"] for metrics in steps if metrics.get("train/tflops")]
    if not measured:
        raise ConfigError(f"--rate {given}: its event log has no step with train/tflops; let the run take some steps.")
    return Rate(median(measured), f"median of {len(measured)} step events of {Path(given).name}")


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
    needed = sum(memory_of(config, subject, shape.device is not None).values()) / GIB
    usable = USABLE * shape.device.memory_gib if shape.device else math.inf  # of a CPU it is not known
    if needed <= usable:
        return ""
    return (
        f"a worker needs {needed:.1f} GiB, more than {usable:.1f} ({USABLE:.0%} of its memory); lower "
        "train.per_device_batch_size, set train.gradient_checkpointing=true, raise parallel.zero_stage, or take "
        "devices with more memory"
    )


@dataclass(frozen=True)
class Estimate:
    """Of a recipe on a shape.

    Attributes:
        batch: how a step is cut.
        memory: bytes of a worker.
        step_s: seconds of a step.
        hours: of all steps; None where these are counted from data that are not there.
        data_cores: CPU cores that make rows as fast as training takes them.
    """

    shape: Shape
    rate: Rate
    batch: BatchSizes
    memory: float
    step_s: float
    hours: float | None
    data_cores: int

    @property
    def device_hours(self) -> float | None:
        """Hours of all devices together."""
        return None if self.hours is None else self.hours * self.shape.workers


def estimate(config: RunConfig, subject: Subject, shape: Shape, rate: Rate | None) -> Estimate | str:
    """The cost of a recipe on a shape, or why it cannot run there.

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
        host_s = read_figures().host_s_per_layer * subject.values["num_hidden_layers"]
        step_s = max(step_s, batch.accumulation * started_passes(config) * host_s)
    tokens_per_s = batch.global_rows * tokens_of_row(config) / step_s
    return Estimate(
        shape=shape,
        rate=rate,
        batch=batch,
        memory=sum(memory_of(config, subject, shape.device is not None).values()),
        step_s=step_s,
        hours=config.train.max_steps * step_s / 3600 if config.train.max_steps else None,
        data_cores=max(FEED_CPUS, math.ceil(tokens_per_s / feed_rate(config))),
    )
