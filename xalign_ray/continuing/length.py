"""Turns the length that a user gives, in steps, hours or money, into optimizer steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from xalign_ray.config.load import Recipe
from xalign_ray.continuing.five_lines import FiveLines
from xalign_ray.errors import ConfigError
from xalign_ray.planning.describe import duration
from xalign_ray.planning.estimate import CPU, Estimate, Rate, Shape, estimate, read_prices
from xalign_ray.planning.subject import at_most, subject_of
from xalign_ray.work.artifacts import whole_json, write_json

FLOOR, CAP = 200, 2_000  # steps, where no length is given
BYTES_OF_TOKEN = 4  # of text, on average over languages
RATE_FILE = "rate.json"  # in the output folder: measured once, so that the same command gives the same steps
OF_PRODUCT = 0.5  # share of a matrix product's speed that a whole step reaches on a CPU
_MEASURED_S = 1.0


def steps_of_pairs(pairs: int, pairs_per_step: int) -> tuple[int, str]:
    """One pass over the pairs, at least FLOOR steps and at most CAP; and why, in words."""
    return _bounded(pairs / pairs_per_step, f"{pairs:,} pairs in steps of {pairs_per_step}")


def steps_of_text(paths: Sequence[Path], rows_per_step: int, length: int) -> tuple[int, str]:
    """One pass over text of that many bytes, about, within the same bounds."""
    size = sum(path.stat().st_size for path in paths if path.is_file())
    return _bounded(size / BYTES_OF_TOKEN / length / rows_per_step, f"about {size / 1e6:,.1f} MB of text")


def _bounded(steps: float, of: str) -> tuple[int, str]:
    once = max(1, round(steps))
    number = min(max(once, FLOOR), CAP)
    passes = number / max(steps, 1e-9)
    bound = f", at least {FLOOR:,}" if number > once else f", at most {CAP:,}" if number < once else ""
    times = f"{passes:.2g}"
    said = f"{number:,} steps: {times} {'pass' if times == '1' else 'passes'} over {of}{bound}"
    return number, f"{said} (--steps sets another number)."


def steps_of_time(lines: FiveLines, recipe: Recipe, output: Path, bytes_of_pair: float) -> tuple[int, str]:
    """The steps that fit into `hours` or `budget`, by the plan's estimate; on a CPU by a measured rate.

    Args:
        output: folder where the measured rate is kept.
        bytes_of_pair: mean size of a pair's two sentences, which says how many fit in a row; 0 of text alone.

    Raises:
        ConfigError: nothing is known of the device, or no step fits.
    """
    prices = read_prices(lines.price)
    config = recipe.config
    on_gpu = config.parallel.gpus_per_worker > 0
    shape = Shape(config.parallel.workers, _device(list(prices), on_gpu))
    subject = subject_of(recipe)
    if isinstance(subject, str):
        raise ConfigError(f"--hours and --budget need the size of the encoder, which is known with {subject}.")
    rate = None if on_gpu else _measured_rate(output, int(config.parallel.cpus_per_worker))
    if bytes_of_pair:
        rows = config.train.pairs_per_step * bytes_of_pair / BYTES_OF_TOKEN / config.data.capacity
        train = config.train.model_copy(update={"global_batch_size": max(shape.workers, round(rows))})
        config = config.model_copy(update={"train": train})
    found = estimate(at_most(config), subject, shape, rate, prices)
    if not isinstance(found, Estimate):
        raise ConfigError(f"The run does not fit {shape}: {found}.")
    if lines.budget is not None:
        if (price := prices.get(shape.name)) is None:
            raise ConfigError(
                f"--budget {lines.budget:g} needs the price of an hour of {shape.name}: --price {shape.name}=2."
            )
        hours = lines.budget / (price * shape.workers)
        of = f"{lines.budget:g} at {price:g} an hour of {shape.name}"
    else:
        assert lines.hours is not None
        hours, of = lines.hours, duration(lines.hours)
    steps = int(3600 * hours / found.step_s)
    if not steps:
        raise ConfigError(f"{of} is less than one step, which takes about {duration(found.step_s / 3600)}.")
    return steps, f"{steps:,} steps of about {duration(found.step_s / 3600)} fit into {of} ({found.rate.words})."


def _device(priced: Sequence[str], on_gpu: bool) -> str:
    """The name of the device that trains: that of the price, else the GPU of this machine."""
    if not on_gpu:
        return CPU
    named = [name for name in priced if name != CPU]
    if len(named) == 1:
        return named[0]
    import torch

    from xalign_ray.train.devices import known_devices

    here = f" {torch.cuda.get_device_name(0).replace('-', ' ')} " if torch.cuda.is_available() else ""
    for name in sorted(known_devices(), key=len, reverse=True):
        if f" {name} " in here:
            return name
    raise ConfigError("--hours and --budget need the name of the GPU: give its price, such as --price H100=2.5.")


def _measured_rate(output: Path, threads: int) -> Rate:
    """TFLOP/s of a training process on this machine's CPU; measured in a second, then remembered."""
    path = output / RATE_FILE
    known = whole_json(path, "tflops", "threads")
    if known is None or known["threads"] != threads:
        known = {"tflops": OF_PRODUCT * _product_tflops(threads), "threads": threads}
        output.mkdir(parents=True, exist_ok=True)
        write_json(path, known)
    return Rate(known["tflops"], f"{known['tflops']:.2g} TFLOP/s measured on this machine, kept in {path}")


def _product_tflops(threads: int) -> float:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    left, right = torch.rand(1024, 768), torch.rand(768, 3072)
    torch.mm(left, right)
    began, products = time.perf_counter(), 0
    while time.perf_counter() - began < _MEASURED_S:
        torch.mm(left, right)
        products += 1
    seconds = time.perf_counter() - began
    torch.set_num_threads(before)
    return products * 2 * 1024 * 768 * 3072 / seconds / 1e12
