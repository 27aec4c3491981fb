"""Checks the files of a model folder by their first bytes and headers, without torch: pointers, cuts, odd types."""

from __future__ import annotations

import json
import pickletools
import zipfile
from collections.abc import Iterator
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
WRAPPED = {  # what wrappers of torch put before the names of a model's weights, and how to save without
    "module.": "as DataParallel saves them: save `model.module` instead",
    "_orig_mod.": "as torch.compile saves them: save `model._orig_mod` instead",
}
_OF_TENSORS = ("torch", "collections", "numpy", "_codecs")  # modules whose objects a pickle of tensors may name
_LIKE_WEIGHTS = (
    *(".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".gguf"),
    *(".incomplete", ".part", ".crdownload"),
)


def check_weight_files(name: str) -> None:
    """Refuses a local folder whose weights cannot fit its config.json; a hub id passes.

    Raises:
        DataError: config.json or weights are missing, Git LFS pointers, cut short, or of numbers that are no weights.
    """
    folder = Path(name)
    if not folder.is_dir():
        return
    read_config(name)
    weights_file = next((file for file in WEIGHTS if (folder / file).is_file()), None)
    if weights_file is None:
        others = ", ".join(sorted(path.name for path in folder.iterdir() if path.suffix in _LIKE_WEIGHTS)[:3])
        raise DataError(
            f"{name} holds no weights: none of {', '.join(WEIGHTS)} is there{others and f', only {others}'}. Save the "
            "model with save_pretrained."
        )
    if (folder / ADAPTER).is_file():
        raise DataError(
            f"{name} holds a model and an adapter of one. Remove {ADAPTER} if the adapter is merged; else merge it "
            "(`merge_and_unload` of peft) and save that."
        )
    for path in _shards(folder / weights_file):
        if not path.is_file():
            raise DataError(f"{name}: {path.name} is missing, though {weights_file} names it. Copy it there.")
        check_is_file(path)
        if path.suffix == ".bin":
            _check_pickle(path)
        types = _read_header(path) if path.suffix == ".safetensors" else {}
        for weight, its_type in types.items():
            if its_type.startswith(QUANTISED):
                raise DataError(
                    f"{path}: {weight} is of type {its_type}. Save the model in fp32, fp16 or bf16, not quantised."
                )
    names = weight_names(name) or ()
    for prefix, why in WRAPPED.items():
        if wrapped := [weight_name for weight_name in names if weight_name.startswith(prefix)]:
            raise DataError(f"{name}: {len(wrapped)} names of its weights begin with '{prefix}', {why}.")


def _check_pickle(path: Path) -> None:
    """Refuses what torch saved if it is cut short, or names objects that are no tensors: it could run any code.

    What versions of torch before 1.6 saved is judged when it is opened.
    """
    named = [str(argument) for opcode, argument in _pickle_steps(path) if opcode == "GLOBAL"]
    other = [name for name in named if name.split(" ")[0].split(".")[0] not in _OF_TENSORS]
    if other:
        raise DataError(
            f"{path} is a pickle of more than tensors ({other[0].replace(' ', '.')}), and could run any code. Save "
            "it as safetensors first, if you know who made it."
        )


def _pickle_steps(path: Path) -> list[tuple[str, object]]:
    """The steps and arguments of a pickle that torch saved, which is not run; none of torch before 1.6.

    Raises:
        DataError: it is cut short.
    """
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            return []
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith("data.pkl"))
            return [(opcode.name, argument) for opcode, argument, _ in pickletools.genops(archive.read(name))]
    except (zipfile.BadZipFile, ValueError):
        raise DataError(f"{path} is not whole. Copy or download it again.") from None


def weight_names(name: str) -> set[str] | None:
    """The names of a local folder's weights, by headers, an index, or the texts in a pickle; None where they
    must be opened.

    Raises:
        DataError: a file of them is not whole.
    """
    path = next((path for file in WEIGHTS if (path := Path(name) / file).is_file()), None)
    if path is None or path.suffix == ".json":
        return set(_read_index(path)) if path else None
    if path.suffix == ".bin":
        return {text for _, text in _pickle_steps(path) if isinstance(text, str) and "." in text} or None
    return set(_read_header(path))


def read_config(name: str) -> dict[str, Any]:
    """The config.json of a local model folder.

    Raises:
        DataError: it is missing, a Git LFS pointer, or not JSON with a `model_type`.
    """
    path = Path(name) / CONFIG
    if not path.is_file():
        raise DataError(f"{name} holds {_instead_of_config(Path(name))}.")
    check_is_file(path)
    return read_json(path, "It is the model's own; copy or download it again.", "model_type")


def _instead_of_config(folder: Path) -> str:
    """The kind of a folder without a config.json, and the folder to name in its place."""
    if (folder / ADAPTER).is_file():
        base = read_json(folder / ADAPTER, "It is the adapter's own.").get("base_model_name_or_path") or "a model"
        return f"an adapter of {base}, no model; merge it (`merge_and_unload` of peft), save that and name its folder"
    below = sorted(path.parent.name for path in folder.glob(f"*/{CONFIG}") if "Pooling" not in path.parent.name)
    if (folder / "modules.json").is_file() and below:
        return f"no {CONFIG}, its encoder lies in a folder below; name {folder / below[0]}"
    return f"no {CONFIG}; name a Hugging Face model folder"


def check_is_file(path: Path) -> None:
    """Refuses a pointer, an error page or a pipe in a file's place; DataError in a sentence."""
    open_file(path).close()


def _shards(path: Path) -> Iterator[Path]:
    """The file itself, or the files that an index names."""
    if path.suffix != ".json":
        yield path
        return
    yield from (path.parent / name for name in sorted(set(_read_index(path).values())))


def _read_index(path: Path) -> dict[str, str]:
    """The file of each weight."""
    check_is_file(path)
    try:
        return {str(name): str(file) for name, file in json.loads(path.read_bytes())["weight_map"].items()}
    except (ValueError, KeyError, AttributeError, TypeError):
        raise DataError(f"{path} is not an index of weights. Save the model again with save_pretrained.") from None


def _read_header(path: Path) -> dict[str, str]:
    """The type of each tensor of a safetensors file: 8 bytes of length, a JSON header, and the tensors."""
    check_safetensors(path)
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: str(value["dtype"]) for name, value in header.items() if name != "__metadata__"}
