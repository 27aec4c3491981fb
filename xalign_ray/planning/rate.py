"""How fast a training process computes: as measured, given or read from a run, or as assumed of its GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from xalign_ray.config.saved import open_saved
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError
from xalign_ray.planning.figures import read_figures
from xalign_ray.planning.shape import CPU, Shape
from xalign_ray.track.events import read_events
from xalign_ray.train.devices import precision_of
from xalign_ray.work.mirror import opened
from xalign_ray.work.run_folder import RunFolder


@dataclass(frozen=True)
class Rate:
    """TFLOP/s of a worker as `train/tflops` counts them, and in words where they are from."""

    tflops: float
    words: str


def find_rate(given: str, config: RunConfig, shapes: Sequence[Shape]) -> Rate | None:
    """A rate that was measured: a number of TFLOP/s, or a run whose event log has it; None where nothing is given.

    Raises:
        ConfigError: it is neither, the shapes are of several devices, or the run was another kind of computing.
        DataError: the run's files are damaged.
    """
    if not given:
        return None
    if len(names := {shape.name for shape in shapes}) > 1:
        raise ConfigError(f"--rate {given}: it was measured on one device, so plan for one: --on names {_all(names)}.")
    try:
        tflops = float(given)
    except ValueError:
        return _of_run(given, config, shapes)
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


def _of_run(given: str, config: RunConfig, shapes: Sequence[Shape]) -> Rate:
    folder = RunFolder(opened(given))
    if not folder.events.is_file():
        raise ConfigError(f"--rate {given}: neither a number of TFLOP/s nor the folder of a run: it has no event log.")
    run, on_gpus = open_saved(folder.path)[0].config, shapes[0].name != CPU
    if (run.parallel.gpus_per_worker > 0) != on_gpus:
        raise ConfigError(f"--rate {given}: the run was on {'CPUs' if on_gpus else 'GPUs'}, and --on is {shapes[0]}.")
    if on_gpus and (was := precision_of(run.train)) != (now := precision_of(config.train)):
        raise ConfigError(f"--rate {given}: the run was in {was}, and the recipe is in {now} (train.bf16, train.tf32).")
    steps = [event["metrics"] for event in read_events(folder.events) if event["event"] == "step"]
    measured = [one["train/tflops"] for one in steps if one.get("train/tflops")]
    if not measured:
        raise ConfigError(f"--rate {given}: its event log has no step with train/tflops; let the run take some steps.")
    return Rate(median(measured), f"median of {len(measured)} step events of {Path(given).name}")


def _all(names: set[str]) -> str:
    return " and ".join(sorted(names))
