"""Values derived from a recipe: its start, batch sizes, DeepSpeed's dict, values in words"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xalign_ray.config.choices import ObjectiveChoice
from xalign_ray.config.explain import flatten
from xalign_ray.config.fields import Scheduled
from xalign_ray.config.load import COMMAND_LINE, Recipe, find_recipe, load_recipe, merge
from xalign_ray.config.schema import DEMO, RunConfig
from xalign_ray.config.sources import FolderTokenizer, GivenTokenizer, StartTokenizer
from xalign_ray.config.training import ScheduleConfig, TrainConfig
from xalign_ray.errors import ConfigError
from xalign_ray.work.artifacts import hash_value
from xalign_ray.work.storage import RUN_OF, absolute_model, absolute_path, hide_places, is_url

FLAT_WEIGHTS = 1_000_000_000  # at most: of more, all gradients at once are too much; DeepSpeed reduces them by buckets
TERMS_AT_ONCE = 1024  # terms of a loss over the whole step whose comparisons are in memory
BLOCK_BYTES = 16 << 20  # of rows that a data task makes at once for a worker: far below where Ray Data splits blocks
FEED_CPUS = 1  # a whole CPU that no worker holds: Ray Data's share is an integer, and 0 is a silent crawl

# Not part of a recipe's meaning: who ran it, where, on how many machines, and the seed that columns group over.
NOT_OF_A_COLUMN = ("notes", "allow", "seed", "output", "parallel", "checkpoint", "track")
_MAX_IN_LABEL = 3


@dataclass(frozen=True)
class BatchSizes:
    """How a global step is cut: every number in rows."""

    global_rows: int
    workers: int
    accumulation: int

    def rows_of(self, rank: int) -> tuple[int, int]:
        """The rows [low, high) of each global step that a worker computes; workers differ by at most one row."""
        return rank * self.global_rows // self.workers, (rank + 1) * self.global_rows // self.workers


def choose_attention(train: TrainConfig, on_gpu: bool, dense_only: bool = False) -> str:
    """`train.attention`, where it is auto the faster of the two: varlen but where it would go example by example.

    Args:
        dense_only: whether the encoder has its own kind of attention; a recipe that asks for varlen is refused before.

    Raises:
        ConfigError: a GPU lacks the operation that the recipe asks for.
    """
    if dense_only:
        return "dense"
    in_bf16 = train.in_bf16(on_gpu)
    if train.attention == "varlen" and on_gpu and not in_bf16:
        raise ConfigError(
            "train.attention is varlen, which a GPU computes in bf16 alone, and train.bf16 is false; set "
            "train.bf16=true, or train.attention=auto, which is dense in fp32."
        )
    if train.attention != "auto":
        return train.attention
    # Compiled on a CPU it would be as many graphs as examples; a GPU has no such operation in fp32.
    by_example = not in_bf16 if on_gpu else train.torch_compile
    return "dense" if by_example else "varlen"


def derive_batch(config: RunConfig) -> BatchSizes:
    """Gradient accumulation from the global batch, the workers and the largest micro-batch.

    Raises:
        ConfigError: when a worker would have a micro-step without a row.
    """
    rows, most = config.train.global_batch_size, config.parallel.workers
    for workers in range(config.parallel.min_workers or most, most + 1):  # a run may have any of these
        if rows < workers:
            raise ConfigError(f"A step has {rows} rows, fewer than parallel.workers {workers}: some would idle.")
        largest_share = -(-rows // workers)
        accumulation = -(-largest_share // config.train.per_device_batch_size)
        if rows // workers < accumulation:
            raise ConfigError(
                f"train.global_batch_size {rows} over {workers} workers leaves {rows // workers} rows for "
                f"{accumulation} micro-steps; raise train.per_device_batch_size or make the global batch a multiple of "
                f"{workers}."
            )
    return BatchSizes(rows, most, accumulation)


def block_shape(config: RunConfig, row_bytes: int) -> tuple[int, int]:
    """How a worker's rows are cut into blocks of at most BLOCK_BYTES: steps of a block, and blocks of a step."""
    rows = -(-config.train.global_batch_size // config.parallel.workers)
    return max(1, BLOCK_BYTES // (rows * row_bytes)), min(rows, -(-rows * row_bytes // BLOCK_BYTES))


def has_flat_gradients(config: RunConfig, weights: int) -> bool:
    """Whether all gradients are reduced and clipped in one piece, ours, or as DeepSpeed does it.

    That is for stage 3, for what does not fit, and for whoever sets something of DeepSpeed's. Over micro-steps the sums
    are 4 bytes a weight on every rank.
    """
    parallel = config.parallel
    return parallel.zero_stage in (1, 2) and weights <= FLAT_WEIGHTS and not parallel.deepspeed_overrides


def deepspeed_config(config: RunConfig, on_gpu: bool) -> dict[str, Any]:
    """The DeepSpeed dict of the recipe, with `parallel.deepspeed_overrides` deep-merged last."""
    batch = derive_batch(config)
    derived: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": -(-batch.global_rows // (batch.workers * batch.accumulation)),
        "gradient_accumulation_steps": batch.accumulation,
        "gradient_clipping": config.train.max_grad_norm,
        "zero_optimization": {"stage": config.parallel.zero_stage},
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": config.in_bf16 and config.parallel.zero_stage > 0},  # at stage 0 the engine casts
        "steps_per_print": 2**31,
        "wall_clock_breakdown": False,
        "timers": {"throughput": {"enabled": False}},  # waits for the GPU twice a step, for a number that nobody sees
    }
    if config.parallel.zero_stage in (1, 2) and not on_gpu:
        # Gloo has no separate stream to overlap with; contiguous copies only cost time.
        derived["zero_optimization"] |= {"overlap_comm": False}
    return merge(derived, config.parallel.deepspeed_overrides)


def deciding_values(config: RunConfig, dropout: str) -> dict[str, str]:
    """Start, learning rate, batch, dropout and losses by name.

    Args:
        dropout: in words; of a continued encoder its config.json has it.
    """
    train = config.train
    rate = f"{train.optimizer.learning_rate:g} at most ({train.optimizer.kind}), {_schedule(train.schedule)}"
    return {
        "start": config.model.init_from or f"from scratch ({config.model.family})",
        "learning rate": rate,
        "batch": batch_in_words(config),
        "dropout": dropout,
        "losses": losses_in_words(config.objectives),
        **({} if train.trainable == "all" else {"trained": _trainable(train)}),
    }


def batch_in_words(config: RunConfig) -> str:
    """Rows and token positions of a step, where they are known without the data."""
    length, rows = config.data.max_seq_length, config.train.global_batch_size
    if not rows:
        return f"rows of {length:,} tokens, as many as hold {config.train.pairs_per_step:,} pairs"
    return f"{rows:,} rows of {length:,} tokens = {rows * length:,} token positions a step"


def weight_in_words(weight: Scheduled) -> str:
    """A weight, or the values that it moves through."""
    return " -> ".join(f"{value:g}" for _, value in weight) if isinstance(weight, tuple) else f"{weight:g}"


def losses_in_words(losses: Sequence[ObjectiveChoice]) -> str:
    """Losses with their weights."""
    return ", ".join(f"{weight_in_words(loss.weight)} {loss.kind}" for loss in losses)


def _trainable(train: TrainConfig) -> str:
    parts = [(first, " and ".join(parts)) for first, parts in train.phases]
    return ", ".join(f"{named} from step {first + 1:,} on" if first else named for first, named in parts)


def _schedule(schedule: ScheduleConfig) -> str:
    warmup = f"{_in_words(schedule.warmup_steps)} of warm-up"
    if schedule.decay_steps == 0:
        return f"{warmup}, then the peak"
    low = f"{schedule.min_lr_ratio:g} of the peak" if schedule.min_lr_ratio else "0"
    if schedule.decay_steps is None:
        return f"{warmup}, then {schedule.decay_type} to {low}"
    return f"{warmup}, the peak, and over the last {_in_words(schedule.decay_steps)} {schedule.decay_type} to {low}"


def _in_words(steps: float) -> str:
    return f"{steps:.0%} of all steps" if 0 < steps < 1 else f"{steps:,} steps"


def method_of(config: RunConfig) -> str:
    """The recipe's method in the words of the papers, `mlm` where nothing is added to plain masked text."""
    streams, losses = config.streams, config.objectives
    read = {loss.stream for loss in losses}
    names = [stream.method for stream in streams if stream.kind not in read]
    for loss in losses:
        names.append(loss.method(next((stream for stream in streams if stream.kind == loss.stream), None)))
    return "+".join(dict.fromkeys(filter(None, names))) or "mlm"


def base_recipe(recipe: Recipe) -> Recipe | None:
    """The recipe whose run this one continues (`model.init_from: run:NAME`), or None.

    It has the same seed, data folder, output, workers and tracking: one run for all that continue it.

    Raises:
        ConfigError: there is no recipe of that name, or it is a URL.
    """
    start = recipe.config.model.init_from or ""
    if is_url(start):
        raise ConfigError(
            f"model.init_from: {start} is a URL; copy the encoder to a folder that all nodes share and name that, or "
            f"the recipe that made it ({RUN_OF}NAME, with the same output)."
        )
    if not start.startswith(RUN_OF):
        return None
    try:
        base = load_recipe(start.removeprefix(RUN_OF))
    except ConfigError as error:
        raise ConfigError(f"model.init_from is '{start}'. {error}") from None
    ours, data = recipe.config, base.config.data.model_copy(update={"root": recipe.config.data.root})
    same = {"seed": ours.seed, "output": ours.output, "parallel": ours.parallel, "track": ours.track, "data": data}
    return replace(base, config=base.config.model_copy(update=same))


def needed_recipes(recipe: Recipe) -> list[Recipe]:
    """The recipe, and those whose runs must be there before its own, each followed by the one that it continues.

    Raises:
        ConfigError: one of them is not there, or continues itself.
    """
    recipes, files = [recipe], [""]
    while base := base_recipe(recipes[-1]):
        start = recipes[-1].config.model.init_from or ""
        file = str(find_recipe(start.removeprefix(RUN_OF)))
        if file in files:
            raise ConfigError(f"model.init_from is '{start}': {file} would continue itself.")
        recipes.append(base)
        files.append(file)
    return recipes


def settle(recipe: Recipe, start: str | None) -> Recipe:
    """The recipe with the folder or hub id that it starts from in place of the written name, its tokenizer included.

    Args:
        start: an encoder's folder or hub id; for `prepare` its tokenizer's folder will do.
    """
    if start is None:
        return recipe
    config = recipe.config
    update: dict[str, object] = {"model": config.model.model_copy(update={"init_from": start})}
    if isinstance(tokenizer := config.data.tokenizer, StartTokenizer):
        of_start = FolderTokenizer(path=start, **tokenizer.model_dump(exclude={"kind"}))
        update["data"] = config.data.model_copy(update={"tokenizer": of_start})
    return replace(recipe, config=config.model_copy(update=update))


_ENCODER = "encoder:"  # what `align` begins with where it names a folder


def with_absolute_paths(recipe: Recipe) -> Recipe:
    """The recipe with the folders that it names as absolute paths; relative ones start at the current folder.

    Paths of sources stay: they start at `data.root`. Names stay too: hub ids, URLs, `run:RECIPE`, `demo`.
    """
    config = with_models(recipe.config, absolute_model)
    data, root = config.data, config.data.root
    parallel = tuple(corpus.model_copy(update={"align": absolute_aligner(corpus.align)}) for corpus in data.parallel)
    data = data.model_copy(update={"root": root if root == DEMO else absolute_path(root), "parallel": parallel})
    return replace(recipe, config=config.model_copy(update={"output": absolute_path(config.output), "data": data}))


def with_models(config: RunConfig, rename: Callable[[str], str]) -> RunConfig:
    """The recipe with other names of the encoder that it starts from, of a given tokenizer, and of the teacher."""
    model, data = config.model, config.data
    tokenizer, teacher = data.tokenizer, data.teacher
    if model.init_from is not None:
        model = model.model_copy(update={"init_from": rename(model.init_from)})
    if isinstance(tokenizer, GivenTokenizer):
        tokenizer = tokenizer.model_copy(update={"path": rename(tokenizer.path)})
    if teacher is not None:
        teacher = teacher.model_copy(update={"path": rename(teacher.path)})
    data = data.model_copy(update={"tokenizer": tokenizer, "teacher": teacher})
    return config.model_copy(update={"model": model, "data": data})


def with_workers(recipe: Recipe, workers: int) -> Recipe:
    """The recipe for as many processes as a launcher has started."""
    parallel = recipe.config.parallel.model_copy(update={"workers": workers, "min_workers": None})
    return replace(recipe, config=recipe.config.model_copy(update={"parallel": parallel}))


def absolute_aligner(written: str) -> str:
    """The name of an aligner; the folder of `encoder:FOLDER` as absolute path."""
    folder = written.removeprefix(_ENCODER)
    return written if folder == written else f"{_ENCODER}{absolute_model(folder)}"


def report_column(recipe: Recipe) -> dict[str, str]:
    """The column of reports that a run belongs to, by its recipe as it was given: keys of its config.yaml.

    Returns:
        column: a hash that is equal for runs that differ in nothing but seed, workers and places.
        label: the recipe's name, with what `--set` changed in brackets where that is little.
    """
    tree = recipe.config.model_dump(mode="json")
    settings = {key: value for key, value in hide_places(tree).items() if key not in NOT_OF_A_COLUMN}
    settings["train"] = settings["train"] | {"per_device_batch_size": None}
    values = flatten(settings)
    changed = [key for key, origin in recipe.origins.items() if origin == COMMAND_LINE and key in values]
    named = ", ".join(f"{key.rpartition('.')[2]}={values[key]}" for key in changed)
    label = f"{recipe.name} ({named})" if 0 < len(changed) <= _MAX_IN_LABEL else recipe.name
    return {"column": hash_value([recipe.name, settings]), "label": label}
