"""The modules of a Sentence Transformers folder: those that an export keeps or writes, and those refused by name."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xalign_ray.errors import DataError
from xalign_ray.models.hub_cache import hub_file
from xalign_ray.work.artifacts import read_json, write_json

MODULES = "modules.json"
SETTINGS = ("config_sentence_transformers.json", "sentence_bert_config.json")  # prompts; the length of an input
KEPT = ("Transformer", "Pooling", "Normalize")  # without weights of their own, but for the encoder
CUT = 512  # tokens of the longest input, if the encoder has room for it: where `evaluate` cuts
_TYPES = "sentence_transformers.models."  # a name that its versions from 2 on know
_DAMAGED = "It says how an encoder makes sentence vectors; copy or download it again."


@dataclass(frozen=True)
class SentenceForm:
    """How an exported encoder makes sentence vectors in Sentence Transformers; their length is 1.

    Attributes:
        pooling: "mean" or "cls".
        prompts: what may be put before a sentence, by name.
        default_prompt: the name of the prompt that is put there unasked; None is no prompt.
        max_length: tokens of an input, special ones included; None is what the encoder has room for, at most `CUT`.
    """

    pooling: str = "mean"
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    max_length: int | None = None


def write_modules(form: SentenceForm, folder: Path, width: int, room: int) -> None:
    """Puts the files beside an encoder that make its folder one of Sentence Transformers.

    Args:
        width: numbers of a vector.
        room: tokens of an input that the encoder takes.
    """
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    write_json(
        folder / MODULES,
        [
            {"idx": number, "name": str(number), "path": path, "type": f"{_TYPES}{kind}"}
            for number, (kind, path) in enumerate(modules)
        ],
    )
    for _, path in modules[1:]:
        (folder / path).mkdir(exist_ok=True)
    kinds = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
    pooling = {"word_embedding_dimension": width, **{key: form.pooling == kind for kind, key in kinds.items()}}
    write_json(folder / "1_Pooling" / "config.json", pooling)
    prompts = {"prompts": dict(form.prompts), "default_prompt_name": form.default_prompt}
    write_json(folder / SETTINGS[0], prompts | {"similarity_fn_name": "cosine"})
    write_json(folder / SETTINGS[1], {"max_seq_length": form.max_length or min(room, CUT), "do_lower_case": False})


def check_modules(name: str) -> None:
    """Refuses a local folder of which training would leave something behind that its sentence vectors need.

    Raises:
        DataError: its encoder lies in a folder below, or a module has weights of its own.
    """
    if not (Path(name) / MODULES).is_file():
        return
    for kind, folder in list_modules(Path(name) / MODULES):
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
    for _, below in list_modules(path):
        config = hub_file(name, f"{below}/config.json") if below else None
        if config is not None:
            (folder / below).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(config, folder / below / "config.json")
        elif below:  # a module without settings, such as Normalize
            (folder / below).mkdir(parents=True, exist_ok=True)
    for file in (MODULES, *SETTINGS):
        if (found := hub_file(name, file)) is not None:
            shutil.copyfile(found, folder / file)


def list_modules(path: Path) -> list[tuple[str, str]]:
    """Kind and folder of each module that a modules.json names, in their order.

    Raises:
        DataError: the file is damaged.
    """
    listed: Any = read_json(path, _DAMAGED)
    try:
        return [(str(module["type"]).rpartition(".")[2], str(module["path"])) for module in listed]
    except (TypeError, KeyError):
        raise DataError(f"{path} is damaged. {_DAMAGED}") from None
