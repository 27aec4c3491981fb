"""Checks the files of a model folder by their first bytes and headers, without torch: pointers, cuts, odd types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xalign_ray.artifacts import read_json
from xalign_ray.errors import DataError

CONFIG = "config.json"
SAFETENSORS = "model.safetensors"
WEIGHTS = (SAFETENSORS, f"{SAFETENSORS}.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")  # in turn
LFS_POINTER = b"version https://git-lfs"
QUANTISED = ("I8", "U8", "F8", "F6", "F4")  # how such types of a header begin
_LONGEST_HEADER = 100_000_000  # bytes; safetensors' own bound


def check_weight_files(name: str) -> None:
    """Refuses a local folder whose weights cannot be what its config.json says; a hub id passes.

    Raises:
        DataError: config.json or weights are missing, Git LFS pointers, cut short, or of numbers that are no weights.
    """
    folder = Path(name)
    if not folder.is_dir():
        return
    read_config(name)
    found = next((file for file in WEIGHTS if (folder / file).is_file()), None)
    if found is None:
        others = ", ".join(
            sorted(path.name for path in folder.iterdir() if path.suffix in (".h5", ".msgpack", ".onnx"))
        )
        raise DataError(
            f"{name} holds no weights: none of {', '.join(WEIGHTS)} is there{others and f', only {others}'}. Save the "
            "model with save_pretrained."
        )
    for path in _shards(folder / found):
        if not path.is_file():
            raise DataError(f"{name}: {path.name} is missing, though {found} names it. Copy it there.")
        check_not_pointer(path)
        types = _read_header(path) if path.suffix == ".safetensors" else {}
        for weight, its_type in types.items():
            if its_type.startswith(QUANTISED):
                raise DataError(
                    f"{path}: {weight} is of type {its_type}. Save the model in fp32, fp16 or bf16, not quantised."
                )


def weight_names(name: str) -> set[str] | None:
    """The names of a local folder's weights, by its safetensors headers or index; None where only opening tells.

    Raises:
        DataError: a file of them is not whole.
    """
    folder = Path(name)
    index, single = folder / f"{SAFETENSORS}.index.json", folder / SAFETENSORS
    if single.is_file():
        check_not_pointer(single)
        return set(_read_header(single))
    return set(_read_index(index)) if index.is_file() else None


def read_config(name: str) -> dict[str, Any]:
    """The config.json of a local model folder.

    Raises:
        DataError: it is missing, a Git LFS pointer, or not JSON with a `model_type`.
    """
    path = Path(name) / CONFIG
    if not path.is_file():
        raise DataError(f"{name} holds no {CONFIG}; name a Hugging Face model folder.")
    check_not_pointer(path)
    return read_json(path, "It is the model's own; copy or download it again.", "model_type")


def check_not_pointer(path: Path) -> None:
    """Refuses the three lines that Git LFS leaves in place of a file that was not downloaded.

    Raises:
        DataError: it is such a pointer.
    """
    with path.open("rb") as file:
        if file.read(len(LFS_POINTER)) == LFS_POINTER:
            raise DataError(f"{path} is a Git LFS pointer, not the file itself. Run `git lfs pull` in its folder.")


def _shards(path: Path) -> Iterator[Path]:
    """The file itself, or the files that an index names."""
    if path.suffix != ".json":
        yield path
        return
    yield from (path.parent / name for name in sorted(set(_read_index(path).values())))


def _read_index(path: Path) -> dict[str, str]:
    """The file of each weight."""
    check_not_pointer(path)
    try:
        return {str(name): str(file) for name, file in json.loads(path.read_bytes())["weight_map"].items()}
    except (ValueError, KeyError, AttributeError, TypeError):
        raise DataError(f"{path} is not an index of weights. Save the model again with save_pretrained.") from None


def _read_header(path: Path) -> dict[str, str]:
    """The type of each tensor. A safetensors file is 8 bytes of length, a JSON header and the tensors it describes.

    Raises:
        DataError: the file has not the size that its header says.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = file.read(length) if length <= min(size, _LONGEST_HEADER) else b""
    try:
        tensors = {name: value for name, value in json.loads(header).items() if name != "__metadata__"}
        expected = 8 + length + max((value["data_offsets"][1] for value in tensors.values()), default=0)
        types = {name: str(value["dtype"]) for name, value in tensors.items()}
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        raise DataError(f"{path} is not a whole safetensors file. Copy or download it again.") from None
    if size != expected:
        raise DataError(f"{path} is cut short: it has {size:,} of {expected:,} bytes. Copy or download it again.")
    return types
