"""What `xalign continue` needs to know of an encoder before it is opened: its width, its head, its pooling."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xalign_ray.errors import ConfigError
from xalign_ray.models.continued import has_head
from xalign_ray.models.families import family_of
from xalign_ray.models.known import encoder_values
from xalign_ray.models.start_files import check_encoder_files
from xalign_ray.models.weight_files import read_config
from xalign_ray.work.local_paths import is_folder_name
from xalign_ray.work.status_line import say

_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*/config.json"]  # of a hub model: no ONNX, no TensorFlow


@dataclass(frozen=True)
class Encoder:
    """An encoder to continue.

    Attributes:
        name: folder or hub id.
        has_head: whether it has a masked-LM head.
        pooling: how its last layer becomes a sentence vector, "mean" or "cls".
        room: the most tokens of a row.
        no_masked_lm: why its family's masked LM cannot be trained; empty if it can.
    """

    name: str
    has_head: bool
    hidden_size: int
    pooling: str
    room: int
    no_masked_lm: str = ""


def look_at_encoder(name: str) -> Encoder:
    """Reads the config of an encoder, the names of its weights and its pooling; of a hub model, by its small files.

    Raises:
        ConfigError: there is no such encoder, or its family cannot be continued.
        DataError: its files are damaged.
    """
    known = encoder_values(name)
    if known is None or Path(name).is_dir():
        check_encoder_files(name)
    values = known or _read_of_hub(name)
    found = has_head(name, values)
    if found is None:
        classes = values.get("architectures") or ["ForMaskedLM"]  # left out where we know a model by its name
        found = any(one.endswith("ForMaskedLM") for one in classes)
    pooling = _pooling(name) if Path(name).is_dir() or known is None else "mean"  # of those that we know by name
    family = family_of(name, values)
    room = family.room({**family.defaults, **values})
    return Encoder(name, found, int(values["hidden_size"]), pooling, room, family.no_masked_lm)


def fetch_revision(name: str, output: Path) -> str:
    """The folder of `ID@REVISION`, downloaded once below the output folder, which all workers see; else the name.

    Raises:
        ConfigError: it cannot be downloaded.
    """
    hub_id, at, revision = name.partition("@")
    if not at or is_folder_name(name) or Path(name).is_dir():
        return name
    folder = output / "models" / name.replace("/", "--")
    if (folder / "config.json").is_file():
        return str(folder)
    from huggingface_hub import snapshot_download

    say(f"Downloading {hub_id} at revision {revision} to {folder}.")
    try:
        snapshot_download(hub_id, revision=revision, local_dir=folder, allow_patterns=_FILES)
    except Exception as error:  # the hub's errors and those of its transport have no class in common
        raise ConfigError(f"{name} cannot be downloaded: {str(error).strip().splitlines()[0]}") from error
    return str(folder)


def _read_of_hub(name: str) -> dict[str, Any]:
    from transformers.utils.hub import cached_file

    path = cached_file(
        name,
        "config.json",
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if path is None:
        raise ConfigError(
            f"{name} is neither a folder nor a model that the hub answers for: check the name, or download it and name "
            "its folder."
        )
    return read_config(str(Path(path).parent))


def _pooling(name: str) -> str:
    from xalign_ray.models.own_pooling import own_pooling  # with transformers, which takes seconds to import

    return own_pooling(name) or "mean"
