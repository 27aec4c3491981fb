"""The modules of a Sentence Transformers folder: those that an export keeps, and those that are refused by name."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from xalign_ray.errors import DataError
from xalign_ray.models.hub_cache import hub_file
from xalign_ray.work.artifacts import read_json

MODULES = "modules.json"
SETTINGS = ("config_sentence_transformers.json", "sentence_bert_config.json")  # prompts; the length of an input
KEPT = ("Transformer", "Pooling", "Normalize")  # without weights of their own, but for the encoder
_DAMAGED = "It says how an encoder makes sentence vectors; copy or download it again."


def check_modules(name: str) -> None:
    """Refuses a local folder of which training would leave something behind that its sentence vectors need.

    Raises:
        DataError: its encoder lies in a folder below, or a module has weights of its own.
    """
    if not (Path(name) / MODULES).is_file():
        return
    for kind, folder in _modules(Path(name) / MODULES):
        if kind == "Transformer" and folder:
            raise DataError(f"{name} keeps its encoder in a folder below: name {name}/{folder}.")
        if kind not in KEPT:
            raise DataError(
                f"{name} has a module {kind}, whose weights would not be trained with the encoder, nor fit it then. "
                f"Continue a copy of the folder without {MODULES}: its vectors are then those of the encoder alone."
            )


def copy_modules(name: str, folder: Path) -> None:
    """Puts the files that make a Sentence Transformers folder of an encoder's into its export; of others, nothing.

    Args:
        name: the folder or hub id that was continued.
        folder: the export.
    """
    path = hub_file(name, MODULES)
    if path is None:
        return
    for _, below in _modules(path):
        config = hub_file(name, f"{below}/config.json") if below else None
        if config is not None:
            (folder / below).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(config, folder / below / "config.json")
        elif below:  # a module without settings, such as Normalize
            (folder / below).mkdir(parents=True, exist_ok=True)
    for file in (MODULES, *SETTINGS):
        if (found := hub_file(name, file)) is not None:
            shutil.copyfile(found, folder / file)


def _modules(path: Path) -> list[tuple[str, str]]:
    """Kind and folder of each module, in their order."""
    listed: Any = read_json(path, _DAMAGED)
    try:
        return [(str(module["type"]).rpartition(".")[2], str(module["path"])) for module in listed]
    except (TypeError, KeyError):
        raise DataError(f"{path} is damaged. {_DAMAGED}") from None
