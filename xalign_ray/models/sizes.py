"""Counts an encoder's parameters from the recipe alone, without torch: what `plan` computes memory from."""

from __future__ import annotations

from dataclasses import dataclass

from xalign_ray.config.schema import ModelConfig
from xalign_ray.models.family import Family, Values


@dataclass(frozen=True)
class Sizes:
    """Parameters by part, each counted once (a decoder that is tied to the word embeddings among these)."""

    word_embeddings: int
    other_embeddings: int
    layers: int
    head: int

    @property
    def total(self) -> int:
        """All trained parameters."""
        return self.word_embeddings + self.other_embeddings + self.layers + self.head


def count_in(family: Family, values: Values, model: ModelConfig, languages: int, with_head: bool = True) -> Sizes:
    """The parameters that `build_encoder` would make of a family and its config.json, exactly.

    Args:
        model: its language embeddings and head are read.
        languages: number of languages of the run.
        with_head: as in `build_encoder`.
    """
    d, V = values["hidden_size"], values["vocab_size"]
    counts = family.count(values, read_by_head=2 * d if model.conditioned_head else d)
    head = counts.transform + counts.output_bias + (0 if values["tie_word_embeddings"] else V * d)
    return Sizes(
        word_embeddings=V * d,
        other_embeddings=counts.other_embeddings + (languages * d if model.language_embeddings else 0),
        layers=counts.layers,
        head=head if with_head else 0,
    )
