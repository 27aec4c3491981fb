"""Fingerprint of a run: a hash of all that changes its result, computed from the config.yaml in its folder alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xalign_ray.config.code import ORDER_CODE, SHARDS_CODE, package_code, plugin_hashes
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.sources import OF_HF
from xalign_ray.work.artifacts import hash_file, hash_value, whole_json

WEIGHTS = (".safetensors", ".bin")  # the files that hold an encoder's weights
NOT_OF_AN_ENCODER = ("_name_or_path", "transformers_version")  # of its config.json: who wrote it and where
# What a continued encoder takes of a recipe.
NOT_OF_THE_START = ("hidden_dropout_prob", "attention_probs_dropout_prob", "language_embeddings", "conditioned_head")
COUNTED_FROM = ("num_train_epochs", "pairs_per_step")  # of `train`; the steps and rows counted from them say it all
# Of `train`, how a step is computed and not what: the result is the same up to rounding. Scoring changes no weight.
HOW_A_STEP_IS_COMPUTED = (
    "per_device_batch_size",
    "attention",
    "gradient_checkpointing",
    "torch_compile",
    "retrieval_steps",
)
INPUTS = "inputs"  # key of config.yaml
# Keys of config.yaml that change no result; the content of `data` is in the inputs.
_ASIDE = ("recipe", "fingerprint", "plugins", "notes", "allow", "output", "parallel", "checkpoint", "track")


def inputs_of(config: RunConfig, data_fingerprint: str) -> dict[str, Any]:
    """What a run's result follows from besides the keys of its recipe, as hashes."""
    start = config.model.init_from
    return {
        "data": data_fingerprint,
        "start": start and _start_identity(start),
        "precision": "bf16" if config.in_bf16 else "fp32",
        "code": code_hashes(config),
    }


def code_hashes(config: RunConfig) -> dict[str, Any]:
    """The code that decides what a step sees, and that of the recipe's plug-ins, by the name of the package."""
    return {"xalign_ray": package_code(*SHARDS_CODE, *ORDER_CODE), **plugin_hashes(config)}


def run_fingerprint(config: RunConfig, data_fingerprint: str) -> str:
    """The fingerprint of a recipe's run over prepared data."""
    assert config.train.is_counted, "data.planned.count_steps comes first"
    return saved_fingerprint(config.model_dump(mode="json") | {INPUTS: inputs_of(config, data_fingerprint)})


def saved_fingerprint(saved: Mapping[str, Any]) -> str:
    """The fingerprint of the run that a config.yaml describes: not workers, micro-batch, ZeRO stage, paths, notes."""
    return hash_value(deciding_keys(saved))


def deciding_keys(saved: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a config.yaml that change the result; the code of plug-ins is known by its files alone."""
    inputs, model = saved[INPUTS], saved["model"]
    kept = {key: value for key, value in saved.items() if key not in _ASIDE}
    data = _without_places(saved["data"])
    data.pop("tokenizer")  # in the inputs by its content
    return kept | {
        INPUTS: inputs | {"code": sorted(map(hash_value, inputs["code"].values()))},
        "data": data,
        "model": {key: model[key] for key in NOT_OF_THE_START} if model["init_from"] else model,
        "train": _without_how(saved["train"]),
        "deepspeed_overrides": saved["parallel"]["deepspeed_overrides"],
    }


def _without_how(train: Mapping[str, Any]) -> dict[str, Any]:
    """What of `train` decides the result; the precision is in the inputs."""
    return {key: train[key] for key in train if key not in ("bf16", *COUNTED_FROM, *HOW_A_STEP_IS_COMPUTED)}


def _start_identity(init_from: str) -> str:
    """What an encoder to continue is: the hash of a folder's weights and config; a hub model is NAME@COMMIT."""
    weights = sorted(path for suffix in WEIGHTS for path in Path(init_from).glob(f"*{suffix}"))
    if not weights:
        return init_from
    config = whole_json(Path(init_from) / "config.json") or {}
    of_model = {key: value for key, value in config.items() if key not in NOT_OF_AN_ENCODER}
    return hash_value([*(hash_file(path) for path in weights), of_model])


# Options that do nothing where a recipe has no data of this key, and are no part of its identity then.
ACTS_ON = {
    "held_out_fraction": "corpora",
    "dictionary_held_out_fraction": "dictionaries",
    "test_fraction": "parallel",
    "dev_fraction": "parallel",
    "max_pairs": "parallel",
}


def data_settings(config: RunConfig) -> dict[str, Any]:
    """The part of the recipe that changes shards, but for paths, the content of inputs, aligners and teacher."""
    tree = _without_places(config.data.model_dump(mode="json"))
    return tree | {"languages": config.languages}


def _without_places(data: Mapping[str, Any]) -> dict[str, Any]:
    """`data` without what says which files are read, is known by content (aligners, teacher), or acts on no data."""
    aside = ("root", "max_bad_fraction", "word_alignment", "teacher")
    kept = {key: value for key, value in data.items() if key not in aside}
    for key in ("corpora", "parallel", "tests", "dev", "dictionaries"):
        places = ("paths",) if key == "dictionaries" else ("paths", *OF_HF)  # these say which files are read
        kept[key] = [{name: source[name] for name in source if name not in places} for source in data[key]]
    kept |= {option: 0 for option, key in ACTS_ON.items() if not data[key]}
    return kept | {"tokenizer": {key: value for key, value in data["tokenizer"].items() if key != "path"}}
