"""Opens an encoder by its files: folder, commit, config, tokenizer and family, without torch or its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from xalign_ray.models.families import find_family
from xalign_ray.models.family import Family
from xalign_ray.models.hub import commit_of, encoder_folder
from xalign_ray.models.own_tokenizer import TOKENIZER_KEY, read_tokenizer
from xalign_ray.models.sentence_files import SentenceFiles, read_sentence_files
from xalign_ray.models.weight_files import has_weights, read_config, read_weights


@dataclass(frozen=True)
class Opened:
    """An encoder by its files.

    Attributes:
        name: folder or hub id, as it was given.
        folder: on this machine; of a hub model without its weights until these are fetched.
        commit: of a hub model; empty of a folder.
        config: its config.json, with what its family means by keys that are left out.
        family: that can be continued; None of another, which can only be scored.
    """

    name: str
    folder: Path
    commit: str
    config: Mapping[str, Any]
    family: Family | None

    @cached_property
    def tokenizer(self) -> Any:
        """As transformers opens it; DataError where it is missing, damaged, another's, or taken for another kind."""
        return read_tokenizer(self.name, self.config.get(TOKENIZER_KEY))

    @cached_property
    def sentences(self) -> SentenceFiles:
        """How it makes sentence vectors; DataError where the files are damaged."""
        return read_sentence_files(self.name)

    @cached_property
    def weights(self) -> Mapping[str, str]:
        """The type of each weight, see `read_weights`; empty where a hub model's are not fetched yet."""
        return read_weights(self.folder) if not self.commit or has_weights(self.folder) else {}

    @cached_property
    def has_head(self) -> bool:
        """Whether it has a masked-LM head that can be trained: by the names of its weights, else by its config.json."""
        if self.family is None or self.family.no_masked_lm:
            return False
        if has_weights(self.folder) and self.weights:
            return self.family.has_head(self.weights, self.config)
        return any(name.endswith(("ForMaskedLM", "ForPreTraining")) for name in self.config.get("architectures") or ())


def open_encoder(name: str | Path) -> Opened:
    """Opens an encoder: its folder, commit, config, tokenizer and family.

    Args:
        name: folder or hub id, perhaps with a revision: `organisation/model@revision`.

    Raises:
        DataError: there is no such folder or model, or it holds no model; what to do.
    """
    folder = encoder_folder(str(name))
    values = read_config(str(folder))
    family = find_family(values["model_type"])
    return Opened(str(name), folder, commit_of(folder), family.complete(values) if family else values, family)
