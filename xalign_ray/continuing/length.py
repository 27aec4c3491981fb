"""Number of steps of a continued run: one pass over the data within bounds, or a length in hours or money."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from xalign_ray.config.load import Recipe
from xalign_ray.continuing.files import ROOT, bytes_of_pair
from xalign_ray.continuing.five_lines import FiveLines
from xalign_ray.errors import ConfigError
from xalign_ray.planning.describe import duration
from xalign_ray.planning.estimate import CPU, Estimate, Rate, Shape, estimate, read_prices
from xalign_ray.planning.subject import at_most, subject_of
from xalign_ray.sources.formats import find_source
from xalign_ray.sources.open import size_of
from xalign_ray.work.artifacts import whole_json, write_json

FLOOR, CAP = 200, 2_000  # steps, where no length is given
MOST_PASSES = 10  # over few data: FLOOR would be 128 passes over 100 pairs
BYTES_OF_TOKEN = 4  # of text, on average over languages
RATE_FILE = "rate.json"  # in the output folder: measured once, so that the same command gives the same steps
OF_PRODUCT = 0.5  # share of a matrix product's speed that a whole step reaches on a CPU
MEASURED_S = 1.0


def choose_steps(lines: FiveLines, recipe: Recipe, pairs: int) -> tuple[int, str]:
    """The optimizer steps of a run, and a sentence on them.

    Args:
        recipe: without its length.
        pairs: the number of pairs that it is trained on; without any the size of the text counts.

    Raises:
        ConfigError: the device of a length in hours or money is not known, or no step fits.
    """
    train, data = recipe.config.train, recipe.config.data
    if lines.steps is not None:
        return lines.steps, f"{lines.steps:,} steps, as asked for."
    if lines.hours is not None or lines.budget is not None:
        return steps_of_time(lines, recipe, Path(recipe.config.output), bytes_of_pair(data.parallel))
    if data.parallel:
        return one_pass(pairs / train.pairs_per_step, f"{pairs:,} pairs in steps of {train.pairs_per_step}")
    size = sum(size_of(path) for corpus in data.corpora for path in find_source(corpus, ROOT)[1])
    rows = size / BYTES_OF_TOKEN / data.max_seq_length
    return one_pass(rows / train.global_batch_size, f"about {size / 1e6:,.1f} MB of text")


def one_pass(exact: float, data: str) -> tuple[int, str]:
    """The steps of one pass, at least FLOOR or MOST_PASSES and at most CAP; and a sentence on it.

    Args:
        exact: steps of one pass, not rounded.
        data: description of the data, for the sentence.
    """
    rounded = max(1, round(exact))
    steps = min(max(rounded, min(FLOOR, round(MOST_PASSES * exact))), CAP)
    passes = steps / max(exact, 1e-9)
    least = f"at least {FLOOR:,}" if steps == FLOOR else f"at most {MOST_PASSES} passes"
    bound = f", {least}" if steps > rounded else f", at most {CAP:,}" if steps < rounded else ""
    times = f"{passes:.2g}" if passes < 10 else f"{passes:,.0f}"
    passed = f"{times} {'pass' if times == '1' else 'passes'} over {data}{bound}"
    return steps, f"{steps:,} step{'s' * (steps != 1)}: {passed} (--steps sets another number)."


def steps_of_time(lines: FiveLines, recipe: Recipe, output: Path, bytes_of_pair: float) -> tuple[int, str]:
    """The steps that fit into `hours` or `budget` by the plan's estimate, on a CPU by a measured rate; and a sentence.

    Args:
        output: folder where the measured rate is kept.
        bytes_of_pair: mean size of the two sentences of a pair, which decides how many fit in a row; 0 of text alone.

    Raises:
        ConfigError: the device is not known, or no step fits.
    """
    prices, config = read_prices(lines.price), recipe.config
    on_gpu = config.parallel.gpus_per_worker > 0
    shape = Shape(config.parallel.workers, _gpu(list(prices)) if on_gpu else CPU)
    subject = subject_of(recipe)
    if isinstance(subject, str):
        raise ConfigError(f"--hours and --budget need the size of the encoder, which is known with {subject}.")
    rate = None if on_gpu else _cpu_rate(output, int(config.parallel.cpus_per_worker))
    if bytes_of_pair:
        rows = config.train.pairs_per_step * bytes_of_pair / BYTES_OF_TOKEN / config.data.capacity
        train = config.train.model_copy(update={"global_batch_size": max(shape.workers, round(rows))})
        config = config.model_copy(update={"train": train})
    cost = estimate(at_most(config), subject, shape, rate)
    if not isinstance(cost, Estimate):
        raise ConfigError(f"The run does not fit {shape}: {cost}.")
    if lines.budget is None:
        assert lines.hours is not None
        hours, length = lines.hours, duration(lines.hours)
    elif (price := prices.get(shape.name)) is None:
        raise ConfigError(
            f"--budget {lines.budget:g} needs the price of an hour of {shape.name}: --price {shape.name}=2."
        )
    else:
        hours = lines.budget / (price * shape.workers)
        length = f"{lines.budget:g} at {price:g} an hour of {shape.name}"
    steps = int(3600 * hours / cost.step_s)
    if not steps:
        raise ConfigError(f"{length} is less than one step, which takes about {duration(cost.step_s / 3600)}.")
    return steps, f"{steps:,} steps of about {duration(cost.step_s / 3600)} fit into {length} ({cost.rate.words})."


def _gpu(priced: Sequence[str]) -> str:
    """The name of the GPU that trains: the one with a price, else that of this machine."""
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


def _cpu_rate(output: Path, threads: int) -> Rate:
    """TFLOP/s of a training process on this machine's CPU: of matrix products for a second, then kept in a file."""
    path = output / RATE_FILE
    measured = whole_json(path, "tflops", "threads")
    if measured is None or measured["threads"] != threads:
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        left, right = torch.rand(1024, 768), torch.rand(768, 3072)
        torch.mm(left, right)
        began, products = time.perf_counter(), 0
        while time.perf_counter() - began < MEASURED_S:
            torch.mm(left, right)
            products += 1
        product_s = (time.perf_counter() - began) / products
        torch.set_num_threads(before)
        measured = {"tflops": OF_PRODUCT * 2 * 1024 * 768 * 3072 / product_s / 1e12, "threads": threads}
        output.mkdir(parents=True, exist_ok=True)
        write_json(path, measured)
    return Rate(measured["tflops"], f"{measured['tflops']:.2g} TFLOP/s measured on this machine, kept in {path}")
