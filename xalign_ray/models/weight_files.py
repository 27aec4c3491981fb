"""Checks the files of a model folder by their first bytes and headers, without torch: pointers, cuts, odd types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xalign_ray.errors import DataError
from xalign_ray.work.artifacts import read_json
from xalign_ray.work.file_checks import check_safetensors, open_file

CONFIG = "config.json"
SAFETENSORS = "model.safetensors"
WEIGHTS = (SAFETENSORS, f"{SAFETENSORS}.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")  # in turn
ADAPTER = "adapter_config.json"
QUANTISED = ("I8", "U8", "F8", "F6", "F4")  # how such types of a header begin
_OWN = "It is the model's own; copy or download it again."


def find_weights(folder: Path) -> list[Path]:
    """The files of a folder's weights, of an index all that it names, there or not; empty if it has none."""
    path = next((path for file in WEIGHTS if (path := folder / file).is_file()), None)
    if path is None or path.suffix != ".json":
        return [path] if path else []
    shards = read_json(path, "Save the model again with save_pretrained.", "weight_map")["weight_map"]
    return [folder / shard for shard in sorted({*shards.values()})]


def has_weights(folder: Path) -> bool:
    """Whether all files of its weights are there."""
    files = find_weights(folder)
    return bool(files) and all(path.is_file() for path in files)


def read_weights(folder: Path) -> dict[str, str]:
    """The type of each weight by its name, of safetensors; pickles are judged when they are opened.

    Raises:
        DataError: weights are missing, Git LFS pointers, cut short, of an adapter, or of numbers that are no weights.
    """
    files = find_weights(folder)
    if not files:
        there = ", ".join(sorted(path.name for path in folder.iterdir() if path.suffix not in (".json", ".txt"))[:3])
        raise DataError(
            f"{folder} holds no weights: none of {', '.join(WEIGHTS)} is there{there and f', only {there}'}. Save the "
            "model with save_pretrained."
        )
    if (folder / ADAPTER).is_file():
        raise DataError(
            f"{folder} holds a model and an adapter of one. Remove {ADAPTER} if the adapter is merged; else merge it "
            "(`merge_and_unload` of peft) and save that."
        )
    types: dict[str, str] = {}
    for path in files:
        if not path.is_file():
            raise DataError(f"{folder}: {path.name} is missing, though its index names it. Copy it there.")
        check_is_file(path)
        if path.suffix == ".safetensors":
            check_safetensors(path)
            with path.open("rb") as file:  # 8 bytes of length, a JSON header, and the tensors
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            types |= {name: str(value["dtype"]) for name, value in header.items() if name != "__metadata__"}
    if odd := next((name for name, its_type in types.items() if its_type.startswith(QUANTISED)), None):
        raise DataError(
            f"{folder}: {odd} is of type {types[odd]}. Save the model in fp32, fp16 or bf16, not quantised."
        )
    return types


def read_config(name: str) -> dict[str, Any]:
    """The config.json of a local model folder.

    Raises:
        DataError: it is missing, a Git LFS pointer, or not JSON with a `model_type`.
    """
    folder = Path(name)
    path = folder / CONFIG
    if path.is_file():
        check_is_file(path)
        return read_json(path, _OWN, "model_type")
    if (folder / ADAPTER).is_file():
        base = read_json(folder / ADAPTER, _OWN).get("base_model_name_or_path") or "a model"
        raise DataError(
            f"{name} holds an adapter of {base}, no model; merge it (`merge_and_unload` of peft), save that and name "
            "its folder."
        )
    below = sorted(path.parent for path in folder.glob(f"*/{CONFIG}") if "Pooling" not in path.parent.name)
    if (folder / "modules.json").is_file() and below:
        raise DataError(f"{name} holds no {CONFIG}, its encoder lies in a folder below; name {below[0]}.")
    raise DataError(f"{name} holds no {CONFIG}; name a Hugging Face model folder.")


def check_is_file(path: Path) -> None:
    """Refuses a pointer, an error page or a pipe in a file's place; DataError in a sentence."""
    open_file(path).close()
