"""Fingerprint of a run: a hash of all that changes its result, computed from the config.yaml in its folder alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from xalign_ray.config.code import ORDER_CODE, SHARDS_CODE, package_code, plugin_hashes
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.sources import OF_HF
from xalign_ray.config.training import ParallelConfig
from xalign_ray.work.artifacts import hash_file, hash_value, whole_json

WEIGHTS = (".safetensors", ".bin")  # the files that hold an encoder's weights
NOT_OF_AN_ENCODER = ("_name_or_path", "transformers_version")  # of its config.json: who wrote it and where
INPUTS = "inputs"  # key of config.yaml
# Of `train`, how a step is computed and not what: the result is the same up to rounding. Scoring changes no weight.
HOW_A_STEP_IS_COMPUTED = (
    "per_device_batch_size",
    "attention",
    "gradient_checkpointing",
    "torch_compile",
    "retrieval_steps",
)
# Keys of `data` with places of files, and of files that are known by their content.
_PLACES = ("root", "max_bad_fraction", "word_alignment", "teacher", "tokenizer.path", "filters.language_model")
_FILES = {  # keys of each source that choose its files, by the key of its list
    **dict.fromkeys(("corpora", "parallel", "tests", "dev"), ("paths", *OF_HF)),
    "dictionaries": ("paths",),
}
# Keys of config.yaml that change no result, or are hashed with the inputs.
_ASIDE = (
    *("recipe", "fingerprint", "column", "label", "plugins", "notes", "allow"),
    *("output", "checkpoint", "track", "data.tokenizer"),
    *(f"parallel.{key}" for key in ParallelConfig.model_fields if key != "deepspeed_overrides"),
    *("train.bf16", "train.num_train_epochs", "train.pairs_per_step", "model.init_from"),
    *(f"train.{key}" for key in HOW_A_STEP_IS_COMPUTED),
)
# The encoder to continue has these already.
_OF_THE_START = ("family", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")


def inputs_of(config: RunConfig, data_fingerprint: str) -> dict[str, Any]:
    """Hashes of all that decides a run's result besides the keys of its recipe."""
    start = config.model.init_from
    return {
        "data": data_fingerprint,
        "start": start and _start_identity(start),
        "precision": "bf16" if config.in_bf16 else "fp32",
        "code": code_hashes(config),
    }


def code_hashes(config: RunConfig) -> dict[str, Any]:
    """The code that decides the batches, and the recipe's plug-ins, by the name of the package."""
    return {"xalign_ray": package_code(*SHARDS_CODE, *ORDER_CODE), **plugin_hashes(config)}


def run_fingerprint(config: RunConfig, data_fingerprint: str) -> str:
    """The fingerprint of a recipe's run over prepared data."""
    assert config.train.is_counted, "data.planned.count_steps comes first"
    return saved_fingerprint(config.model_dump(mode="json") | {INPUTS: inputs_of(config, data_fingerprint)})


def saved_fingerprint(saved: Mapping[str, Any]) -> str:
    """The fingerprint of the run that a config.yaml describes: not workers, micro-batch, ZeRO stage, paths, notes."""
    return hash_value(deciding_keys(saved))


def deciding_keys(saved: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a config.yaml that change the result."""
    of_start = [f"model.{key}" for key in _OF_THE_START] if saved["model"]["init_from"] else []
    return _without({**saved, "data": _without_places(saved["data"])}, [*_ASIDE, *of_start])


def data_settings(config: RunConfig) -> dict[str, Any]:
    """The part of the recipe that changes shards, but for paths, the content of inputs, aligners and teacher."""
    return _without_places(config.data.model_dump(mode="json")) | {"languages": config.languages}


def _without_places(data: Mapping[str, Any]) -> dict[str, Any]:
    sources = {key: [_without(source, files) for source in data[key]] for key, files in _FILES.items()}
    return _without({**data, **sources}, _PLACES)


def _without(tree: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """A tree without some of its keys, which may be dotted."""
    left = {key: value for key, value in tree.items() if key not in keys}
    inner: dict[str, list[str]] = {}
    for block, _, rest in (key.partition(".") for key in keys):
        inner.setdefault(block, []).append(rest)
    return left | {block: _without(left[block], rest) for block, rest in inner.items() if block in left}


def _start_identity(init_from: str) -> str:
    """The identity of an encoder to continue: the hash of a folder's weights and config; a hub model is NAME@COMMIT."""
    weights = sorted(path for suffix in WEIGHTS for path in Path(init_from).glob(f"*{suffix}"))
    if not weights:
        return init_from
    config = whole_json(Path(init_from) / "config.json") or {}
    return hash_value([*(hash_file(path) for path in weights), _without(config, NOT_OF_AN_ENCODER)])
