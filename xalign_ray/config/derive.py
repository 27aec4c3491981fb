"""Numbers that follow from a recipe, computed here once: batch sizes, fingerprints, the DeepSpeed dict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xalign_ray.config.load import merge
from xalign_ray.config.plugin_sources import plugin_hashes
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.training import TrainConfig
from xalign_ray.errors import ConfigError
from xalign_ray.work.artifacts import hash_file, hash_value, whole_json

ORDER_VERSION = 3  # raise it when the same recipe would see other rows or other masks: old checkpoints then do not fit
CHUNK_STEPS = 32  # steps whose rows are planned together: more are longer reads, fewer are closer to a schedule
TERMS_AT_ONCE = 1024  # terms of a loss over the whole step whose comparisons are in memory
WEIGHTS = (".safetensors", ".bin")  # the files that hold an encoder's weights
# What a continued encoder takes of a recipe.
NOT_OF_THE_START = ("hidden_dropout_prob", "language_embeddings", "conditioned_head")
NOT_OF_AN_ENCODER = ("_name_or_path", "transformers_version")  # of its config.json: who wrote it and where
COUNTED_FROM = ("num_train_epochs", "pairs_per_step")  # of `train`; the steps and rows counted from them say it all
# Of `train`, how a step is computed and not what: the result is the same up to rounding. Scoring changes no weight.
HOW_A_STEP_IS_COMPUTED = (
    "per_device_batch_size",
    "attention",
    "gradient_checkpointing",
    "torch_compile",
    "retrieval_steps",
)
BLOCK_BYTES = 16 << 20  # of what a data task makes at once for a worker: far below where Ray Data splits blocks
FEED_CPUS = 1  # a whole CPU that no worker holds: Ray Data's share is an integer, and 0 is a silent crawl


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
        dense_only: whether the encoder has an attention of its own; a recipe that asks for varlen is refused before.
    """
    if dense_only:
        return "dense"
    if train.attention != "auto":
        return train.attention
    # Compiled on a CPU it would be as many graphs as examples; on a GPU in fp32 each layer would wait for the device.
    by_example = not train.bf16 if on_gpu else train.torch_compile
    return "dense" if by_example else "varlen"


def derive_batch(config: RunConfig) -> BatchSizes:
    """Gradient accumulation from the global batch, the workers and the largest micro-batch.

    Raises:
        ConfigError: when a worker would have a micro-step without a row.
    """
    workers = config.parallel.workers
    numbers = range(config.parallel.min_workers or workers, workers + 1)  # any of which a run may come to
    return [_cut(config, number) for number in numbers][-1]


def _cut(config: RunConfig, workers: int) -> BatchSizes:
    rows = config.train.global_batch_size
    if rows < workers:
        raise ConfigError(f"train.global_batch_size is {rows}, less than parallel.workers {workers}: some would idle.")
    largest_share = -(-rows // workers)
    accumulation = -(-largest_share // config.train.per_device_batch_size)
    if rows // workers < accumulation:
        raise ConfigError(
            f"train.global_batch_size {rows} over {workers} workers leaves {rows // workers} rows for {accumulation} "
            f"micro-steps; raise train.per_device_batch_size or make the global batch a multiple of {workers}."
        )
    return BatchSizes(rows, workers, accumulation)


def block_shape(config: RunConfig, row_bytes: int) -> tuple[int, int]:
    """How a worker's rows are cut into blocks of at most BLOCK_BYTES: steps of a block, and blocks of a step."""
    rows = -(-config.train.global_batch_size // config.parallel.workers)
    return max(1, BLOCK_BYTES // (rows * row_bytes)), min(rows, -(-rows * row_bytes // BLOCK_BYTES))


def run_fingerprint(config: RunConfig, data_fingerprint: str) -> str:
    """Hash of what changes the result: not workers, micro-batch, ZeRO stage, paths, tracking or notes.

    The code of plug-ins is known by its files, wherever they lie.
    """
    assert config.train.is_counted, "data.counted.count_steps comes first"
    tree = config.model_dump(
        mode="json", exclude={"plugins", "notes", "allow", "output", "data", "parallel", "checkpoint", "track"}
    )
    tree["train"] = {
        key: value for key, value in tree["train"].items() if key not in (*COUNTED_FROM, *HOW_A_STEP_IS_COMPUTED)
    }
    if config.model.init_from is not None:
        tree["model"] = {key: tree["model"][key] for key in NOT_OF_THE_START} | {
            "init_from": _start_identity(config.model.init_from)
        }
    tree["deepspeed_overrides"] = config.parallel.deepspeed_overrides
    code = sorted(plugin_hashes(config).values())
    return hash_value(
        {"recipe": tree, "plugins": code, "data": data_fingerprint, "order": [ORDER_VERSION, CHUNK_STEPS]}
    )


def _start_identity(init_from: str) -> str:
    """What an encoder to continue is, wherever it lies: the hash of its weights and config; a hub model is its name."""
    weights = sorted(path for suffix in WEIGHTS for path in Path(init_from).glob(f"*{suffix}"))
    if not weights:
        return init_from
    config = whole_json(Path(init_from) / "config.json") or {}
    of_model = {key: value for key, value in config.items() if key not in NOT_OF_AN_ENCODER}
    return hash_value([*(hash_file(path) for path in weights), of_model])


def data_settings(config: RunConfig) -> dict[str, Any]:
    """The part of the recipe that changes shards, but for paths, the content of inputs, and what aligners depend on."""
    tree = config.data.model_dump(mode="json", exclude={"root", "max_bad_fraction", "word_alignment"})
    for source in [*tree["corpora"], *tree["parallel"], *tree["tests"], *tree["dictionaries"]]:
        source.pop("paths")
    tree["tokenizer"].pop("path", None)
    return tree | {"languages": config.languages}


def deepspeed_config(config: RunConfig, on_gpu: bool) -> dict[str, Any]:
    """The DeepSpeed dict of the recipe, with `parallel.deepspeed_overrides` deep-merged last."""
    batch = derive_batch(config)
    derived: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": -(-batch.global_rows // (batch.workers * batch.accumulation)),
        "gradient_accumulation_steps": batch.accumulation,
        "gradient_clipping": config.train.max_grad_norm,
        "zero_optimization": {"stage": config.parallel.zero_stage},
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": config.train.bf16 and config.parallel.zero_stage > 0},  # at stage 0 the engine casts
        "steps_per_print": 2**31,
        "wall_clock_breakdown": False,
    }
    if config.parallel.zero_stage in (1, 2) and not on_gpu:
        # Gloo has no separate stream to overlap with; contiguous copies only cost time.
        derived["zero_optimization"] |= {"overlap_comm": False}
    return merge(derived, config.parallel.deepspeed_overrides)
