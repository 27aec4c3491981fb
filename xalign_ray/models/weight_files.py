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
        if path.suffix == ".safetensors":
            _check_header(path)


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
    check_not_pointer(path)
    if path.suffix != ".json":
        yield path
        return
    try:
        names = set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError):
        raise DataError(f"{path} is not an index of weights. Save the model again with save_pretrained.") from None
    yield from (path.parent / str(name) for name in sorted(map(str, names)))


def _check_header(path: Path) -> None:
    """A safetensors file is 8 bytes of length, a JSON header, and the tensors: as many bytes as the header says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _LONGEST_HEADER):
            raise DataError(f"{path} is not a whole safetensors file. Copy or download it again.")
        try:
            header: dict[str, Any] = json.loads(file.read(length))
            tensors = {name: value for name, value in header.items() if name != "__metadata__"}
            end = max((value["data_offsets"][1] for value in tensors.values()), default=0)
            quantised = [name for name, value in tensors.items() if value["dtype"].startswith(QUANTISED)]
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            raise DataError(f"{path} is not a whole safetensors file. Copy or download it again.") from None
    if size != 8 + length + end:
        raise DataError(
            f"{path} is cut short: it has {size:,} of {8 + length + end:,} bytes. Copy or download it again."
        )
    if quantised:
        raise DataError(
            f"{path}: {quantised[0]} is of type {tensors[quantised[0]]['dtype']}. Save the model in fp32, fp16 or "
            "bf16, not quantised."
        )
