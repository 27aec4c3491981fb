"""Sentences with their dependency trees, which can be put in another order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ROOT = -1


@dataclass(frozen=True, slots=True)
class Tree:
    """A dependency tree over N words.

    Attributes:
        tags: universal parts of speech [N].
        heads: place of each word's head from 0, ROOT for the root [N].
        relations: universal relations, without what languages add behind a colon [N].
    """

    tags: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words, and their tree where it is known."""

    words: tuple[str, ...]
    tree: Tree | None = None

    def in_order(self, places: Sequence[int]) -> Sentence:
        """The sentence with its words in another order; `places` says for each new place the old one."""
        words = tuple(self.words[place] for place in places)
        if self.tree is None:
            return Sentence(words)
        new = {old: place for place, old in enumerate(places)} | {ROOT: ROOT}
        return Sentence(
            words,
            Tree(
                tuple(self.tree.tags[place] for place in places),
                tuple(new[self.tree.heads[place]] for place in places),
                tuple(self.tree.relations[place] for place in places),
            ),
        )
