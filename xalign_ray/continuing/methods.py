"""Chooses the recipe of `xalign continue` by method, data and encoder, and its steps by a length in hours or money."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xalign_ray.config.load import Recipe
from xalign_ray.continuing.five_lines import FiveLines
from xalign_ray.errors import ConfigError
from xalign_ray.models.backbone import encoder_values
from xalign_ray.models.continued import check_encoder_files
from xalign_ray.models.families import family_of
from xalign_ray.models.open import Opened, open_encoder
from xalign_ray.planning.describe import duration
from xalign_ray.planning.estimate import CPU, Estimate, Rate, Shape, estimate, read_prices
from xalign_ray.planning.subject import at_most, subject_of
from xalign_ray.work.artifacts import whole_json, write_json


def look_at_encoder(name: str) -> Opened:
    """An encoder to continue, by its small files.

    Raises:
        ConfigError: there is no such encoder, or its family cannot be continued.
        DataError: its files are damaged.
    """
    encoder_values(name)  # refuses a folder that is not there before the hub is asked
    opened = open_encoder(name)
    check_encoder_files(opened)
    family_of(name, opened.config)
    return opened


LARGE = 1024  # hidden size from which an encoder is continued at half the learning rate
REPLAY = 0.1  # share of rows that are text, where text is given beside pairs
NEW_HEAD = ", or --set allow=[new_head], which trains one from random weights and harms the encoder at first"
PAIRS, DICTIONARY, TEXT, TEACHER = "--pairs FILE", "--dictionary FILE", "--text FILE", "--teacher FOLDER"


@dataclass(frozen=True)
class Given:
    """What a method may need.

    Attributes:
        encoder: its name, for messages.
        has_head: whether the encoder has a masked-LM head, or a new one is allowed.
        pairs, dictionary, text: whether such files are given.
        no_masked_lm: why its family's masked LM cannot be trained, empty if it can; see models/family.py.
        teacher: whether an encoder is given whose vectors are learned.
    """

    encoder: str
    has_head: bool
    pairs: bool
    dictionary: bool
    text: bool
    no_masked_lm: str = ""
    teacher: bool = False


@dataclass(frozen=True)
class Choice:
    """A recipe's name below `continue/`, and in a sentence why it was chosen."""

    recipe: str
    why: str


def choose(method: str, given: Given) -> Choice:
    """The recipe of a method.

    Raises:
        ConfigError: the data or the encoder do not allow the method.
    """
    if given.teacher and method != "distill":
        raise ConfigError(f"--teacher is for --method distill, and the method is {method}.")
    if method == "auto":
        return _choose_auto(given)
    if refused := _refusal(method, given):
        raise ConfigError(f"--method {method}: {refused}")
    if given.has_head:
        return Choice(method, f"Method {method}, as asked for.")
    instead, changed = {
        "align": ("align-contrast", "; the encoder has no masked-LM head, so contrast trains beside the dictionary"),
        "ppa": ("ppa-no-tlm", "; the encoder has no masked-LM head, so without TLM"),
    }.get(method, (method, ""))
    return Choice(instead, f"Method {method}, as asked for{changed}.")


def _choose_auto(given: Given) -> Choice:
    for method, there, why in (
        ("contrast-tlm", given.pairs and given.has_head, "pairs, and an encoder with a masked-LM head"),
        ("contrast", given.pairs, "pairs, and an encoder without a masked-LM head"),
        ("align", given.dictionary, "a dictionary without pairs"),
        ("mlm", given.text, "text alone"),
    ):
        if there:
            if refused := _refusal(method, given):
                raise ConfigError(f"--method auto takes {method} of {why}, but {refused}")
            return Choice(method, f"Method {method}: {why}.")
    raise ConfigError(f"There is nothing to train on: give {PAIRS}, {DICTIONARY} or {TEXT}.")


def _refusal(method: str, given: Given) -> str:
    """Why a method cannot be trained, and what to do; empty if it can."""
    no_head, new_head = f"{given.encoder} has no masked-LM head", NEW_HEAD
    if given.no_masked_lm:
        no_head, new_head = f"{given.encoder} {given.no_masked_lm}", ""
    pairs = given.pairs, f"it needs sentence pairs: add {PAIRS}."
    needed = {
        "contrast": [pairs],
        "contrast-tlm": [
            pairs,
            (given.has_head, f"TLM predicts masked words, and {no_head}: take --method contrast{new_head}."),
        ],
        "distill": [
            pairs,
            (given.teacher, f"it learns another encoder's sentence vectors: add {TEACHER}."),
        ],
        "align": [
            (given.dictionary, f"it draws the words of a dictionary together: add {DICTIONARY}."),
            (
                given.pairs or given.text or not given.has_head,
                f"it needs sentences to predict words in: add {TEXT} or {PAIRS}.",
            ),
            (
                given.pairs or given.has_head,
                f"{no_head}, and the dictionary alone would draw all words together: add {PAIRS}.",
            ),
        ],
        "weam": [
            pairs,
            (given.has_head, f"it predicts masked words, and {no_head}: take --method contrast{new_head}."),
        ],
        "ppa": [pairs],
        "mlm": [
            (given.text, f"it needs text: add {TEXT}."),
            (
                given.has_head,
                f"it predicts masked words, and {no_head}: take --method contrast with {PAIRS}{new_head}.",
            ),
        ],
    }
    return next((why for there, why in needed[method] if not there), "")


def check_replay(replay: float | None, given: Given, recipe: str) -> float:
    """The share of rows that are monolingual text, for masked LM.

    Raises:
        ConfigError: a share is asked for that cannot be trained.
    """
    is_text_itself = recipe == "mlm" or (recipe == "align" and given.text)
    if replay is None:
        return REPLAY if given.text and given.has_head and not is_text_itself else 0.0
    if not replay or is_text_itself:
        return 0.0
    if not given.text:
        raise ConfigError(f"--replay {replay:g} mixes text of the encoder's own kind in: add {TEXT}.")
    if not given.has_head:
        raise ConfigError(
            f"--replay {replay:g} is masked LM on text, and {given.encoder} has no masked-LM head, so it "
            "learns nothing from text. To keep a language, add sentence pairs in it (one more --pairs FILE); --keep "
            "FILE shows whether it was kept."
        )
    return replay


FLOOR, CAP = 200, 2_000  # steps, where no length is given
MOST_PASSES = 10  # over few data: FLOOR would be 128 passes over 100 pairs
BYTES_OF_TOKEN = 4  # of text, on average over languages
RATE_FILE = "rate.json"  # in the output folder: measured once, so that the same command gives the same steps
OF_PRODUCT = 0.5  # share of a matrix product's speed that a whole step reaches on a CPU
_MEASURED_S = 1.0


def steps_of_pairs(pairs: int, pairs_per_step: int) -> tuple[int, str]:
    """One pass over the pairs, at least FLOOR steps or MOST_PASSES and at most CAP; and why, in words."""
    return _bounded(pairs / pairs_per_step, f"{pairs:,} pairs in steps of {pairs_per_step}")


def steps_of_text(size: int, rows_per_step: int, length: int) -> tuple[int, str]:
    """One pass over text of that many bytes, about, within the same bounds."""
    return _bounded(size / BYTES_OF_TOKEN / length / rows_per_step, f"about {size / 1e6:,.1f} MB of text")


def _bounded(steps: float, of: str) -> tuple[int, str]:
    once = max(1, round(steps))
    number = min(max(once, min(FLOOR, round(MOST_PASSES * steps))), CAP)
    passes = number / max(steps, 1e-9)
    least = f"at least {FLOOR:,}" if number == FLOOR else f"at most {MOST_PASSES} passes"
    bound = f", {least}" if number > once else f", at most {CAP:,}" if number < once else ""
    times = f"{passes:.2g}" if passes < 10 else f"{passes:,.0f}"
    said = f"{number:,} step{'s' * (number != 1)}: {times} {'pass' if times == '1' else 'passes'} over {of}{bound}"
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
