"""The kinds of word aligner by name, and their interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from xalign_ray.align.chain_aligner import Chains
from xalign_ray.align.encoder_aligner import PretrainedEncoder
from xalign_ray.align.links import Link, WordPair
from xalign_ray.config.explain import suggest
from xalign_ray.config.sources import WordAlignment
from xalign_ray.errors import ConfigError


class Aligner(Protocol):
    """A model that is ready to align; stays in its process."""

    def align(self, pairs: Sequence[WordPair], method: str) -> list[list[Link]]:
        """The sorted links of each pair, both directions made one by `method`, a name in links.SYMMETRISERS."""
        ...


class AlignerKind(Protocol):
    """How a model is trained and opened; small, so that it travels to a worker.

    Attributes:
        name: as in ALIGNERS.
        default_method: the name in links.SYMMETRISERS that it is published with.
        learns: whether it is trained on pairs.
    """

    name: ClassVar[str]
    default_method: ClassVar[str]
    learns: ClassVar[bool]

    def identity(self) -> dict[str, Any]:
        """What its alignments depend on, besides the pairs it is trained on: JSON."""
        ...

    def train(self, pairs: Sequence[WordPair], folder: Path) -> None:
        """Trains on the pairs and writes the model's files into a folder that exists."""
        ...

    def open(self, folder: Path) -> Aligner:
        """The trained model in a folder."""
        ...


ALIGNERS: Mapping[str, Callable[..., AlignerKind]] = {
    Chains.name: Chains,
    PretrainedEncoder.name: PretrainedEncoder,
}


def named_aligner(name: str, languages: tuple[str, str], settings: WordAlignment) -> AlignerKind:
    """The kind that a recipe or command names: `hmm` or `encoder:FOLDER`, for a corpus of two languages.

    Raises:
        ConfigError: there is none of this name.
    """
    name, _, folder = name.partition(":")
    if name not in ALIGNERS:
        raise ConfigError(f"unknown aligner '{name}'.{suggest(name, ALIGNERS)} Known: {', '.join(ALIGNERS)}.")
    options = {"path": folder, "languages": languages, "extraction": settings.extraction, "layer": settings.layer}
    return ALIGNERS[name](**(options if folder else {}))


def alignment_identity(kind: AlignerKind, settings: WordAlignment) -> dict[str, Any]:
    """What links depend on besides the texts: the aligner, the join, and the sample that it is trained on."""
    sample = {"pairs": settings.train_pairs, "seed": settings.seed} if kind.learns else None
    return {"aligner": kind.identity(), "method": settings.join or kind.default_method, "sample": sample}
