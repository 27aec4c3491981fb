"""What each language tells of the fact table: documents, translations, retrieval pairs and tagged sentences."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from xalign_ray.demo.facts import Fact, FactTable

DOCUMENT_SENTENCES = (5, 8)
STATED_SHARE = 0.7  # of the triples of the table, told by a language in its documents; each language has its own


@dataclass(frozen=True, slots=True)
class Article:
    """A document before it is said in words: a topic's facts."""

    topic: str
    facts: tuple[Fact, ...]


def draw_facts(
    table: FactTable, rng: random.Random, allowed: Callable[[Fact], bool], topic: str = ""
) -> Iterator[Fact]:
    """Endless facts that are allowed, of one topic or, each time anew, of any."""
    while True:
        fact = table.sample(topic or table.topics.sample(rng), rng)
        if allowed(fact):
            yield fact


def draw_distinct(table: FactTable, rng: random.Random, allowed: Callable[[Fact], bool], count: int) -> list[Fact]:
    """So many different facts."""
    chosen: dict[Fact, None] = {}
    for fact in draw_facts(table, rng, allowed):
        if len(chosen) == count:
            break
        chosen[fact] = None
    return list(chosen)


def draw_articles(
    table: FactTable, language: str, seed: int, allowed: Callable[[Fact], bool], sentences: int
) -> list[Article]:
    """The documents of a language, with so many sentences together; the language leaves out some triples for good."""
    rng = random.Random(f"articles/{language}/{seed}")

    def is_stated(fact: Fact) -> bool:
        stated = random.Random(f"told/{language}/{seed}/{'/'.join(fact.triple)}").random() < STATED_SHARE
        return stated and allowed(fact)

    articles: list[Article] = []
    left = sentences
    while left > 0:
        topic = table.topics.sample(rng)
        length = min(left, rng.choice(range(DOCUMENT_SENTENCES[0], DOCUMENT_SENTENCES[1] + 1)))
        facts = draw_facts(table, rng, is_stated, topic)
        articles.append(Article(topic, tuple(next(facts) for _ in range(length))))
        left -= length
    return articles
