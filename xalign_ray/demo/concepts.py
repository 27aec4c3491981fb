"""The concepts of the embedded world: 300 English words, written by hand, with topic and role."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

LEXICON = Path(__file__).with_name("lexicon.tsv")
UPOS_OF_ROLE = {"agent": "NOUN", "thing": "NOUN", "place": "NOUN", "verb": "VERB", "adjective": "ADJ"}


@dataclass(frozen=True, slots=True)
class Concept:
    """A content word; its English form is also its name in the fact table.

    Attributes:
        word: the only English form (nouns and verbs plural): the world has no inflection.
        topic: one of 15; facts stay mostly within a topic.
        role: agent, thing, place, verb or adjective: what the word can be in a fact.
        cognate: every language writes the word as English does; besides digits, all that languages share.
    """

    word: str
    topic: str
    role: str
    cognate: bool

    @property
    def upos(self) -> str:
        """The universal part of speech."""
        return UPOS_OF_ROLE[self.role]


@cache
def load_concepts() -> tuple[Concept, ...]:
    """All concepts, in the order of lexicon.tsv, which is also the order in which languages get their words."""
    header, *lines = LEXICON.read_text(encoding="utf-8").splitlines()
    assert header.split("\t") == ["word", "topic", "role", "cognate"]
    rows = [line.split("\t") for line in lines]
    return tuple(Concept(word, topic, role, cognate == "yes") for word, topic, role, cognate in rows)
