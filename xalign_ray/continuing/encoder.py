"""What `xalign continue` needs to know of an encoder before it is opened: its width, its head, its pooling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xalign_ray.errors import ConfigError
from xalign_ray.models.continued import has_head
from xalign_ray.models.families import family_of
from xalign_ray.models.hub_cache import hub_file, in_cache
from xalign_ray.models.known import encoder_values
from xalign_ray.models.own_pooling import own_pooling
from xalign_ray.models.start_files import check_encoder_files
from xalign_ray.models.weight_files import CONFIG, read_config


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
    found = has_head(in_cache(name), values)
    if found is None:
        classes = values.get("architectures") or ["ForMaskedLM"]  # left out where we know a model by its name
        found = any(one.endswith("ForMaskedLM") for one in classes)
    pooling = own_pooling(name) if Path(name).is_dir() or known is None else None  # of those that we know by name: mean
    family = family_of(name, values)
    room = family.room({**family.defaults, **values})
    return Encoder(name, found, int(values["hidden_size"]), pooling or "mean", room, family.no_masked_lm)


def _read_of_hub(name: str) -> Mapping[str, Any]:
    path = hub_file(name, CONFIG)
    if path is None:
        raise ConfigError(
            f"{name} is neither a folder nor a model that the hub answers for: check the name, or download it and name "
            "its folder."
        )
    return read_config(str(path.parent))
