"""What the embedded world says: its concepts, the facts that hold of them, and documents that tell a share of them"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
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


ZIPF_EXPONENT = 0.5  # of a word among its peers in a topic, and of the topics; natural text has about 1
SUBJECTS_PER_VERB = 2
OBJECTS_PER_VERB = 3
PLACES_PER_VERB = 2
ADJECTIVES_PER_NOUN = 3
YEARS = range(1900, 2000)
SHARES = {"quality": 0.2, "adjective": 0.45, "place": 0.5, "second_object": 0.1, "year": 0.1}
PREPOSITIONS = ("in", "near", "behind")


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun of a fact, with the adjective said of it, if any."""

    word: str
    adjective: str | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """What one sentence says. With a verb: subject does verb to objects; without: subject is quality."""

    subject: Noun
    verb: str | None = None
    objects: tuple[Noun, ...] = ()
    quality: str | None = None
    preposition: str | None = None
    place: Noun | None = None
    year: int | None = None

    @property
    def triple(self) -> tuple[str, str, str]:
        """What makes two facts the same news, whatever their trimmings: (subject, verb or "are", object or quality)."""
        return self.subject.word, self.verb or "are", self.objects[0].word if self.objects else str(self.quality)


@dataclass(frozen=True, slots=True)
class WeightedWords:
    """A few words with Zipf weights, the usual one first."""

    words: tuple[str, ...]
    cumulative: tuple[float, ...]

    @classmethod
    def of(cls, words: Sequence[str]) -> WeightedWords:
        """Weighs the words by rank ** -ZIPF_EXPONENT."""
        return cls(tuple(words), tuple(accumulate(rank**-ZIPF_EXPONENT for rank in range(1, len(words) + 1))))

    def sample(self, rng: random.Random) -> str:
        """One word."""
        return rng.choices(self.words, cum_weights=self.cumulative)[0]


@dataclass(frozen=True, slots=True)
class FactTable:
    """The usual company of every word.

    Attributes:
        topics: all topics, frequent ones first.
        verbs: topic to its verbs.
        nouns: topic to its nouns.
        subjects, objects, places: verb to its usual subjects, objects, places.
        adjectives: noun to its usual adjectives.
    """

    topics: WeightedWords
    verbs: dict[str, WeightedWords]
    nouns: dict[str, WeightedWords]
    subjects: dict[str, WeightedWords]
    objects: dict[str, WeightedWords]
    places: dict[str, WeightedWords]
    adjectives: dict[str, WeightedWords]

    def sample(self, topic: str, rng: random.Random) -> Fact:
        """One fact of a topic."""
        year = rng.choice(YEARS) if rng.random() < SHARES["year"] else None
        if rng.random() < SHARES["quality"]:
            noun = self.nouns[topic].sample(rng)
            return Fact(Noun(noun), quality=self.adjectives[noun].sample(rng), year=year)
        verb = self.verbs[topic].sample(rng)
        subject = self._describe(self.subjects[verb].sample(rng), rng)
        objects = [self._describe(self.objects[verb].sample(rng), rng)]
        if rng.random() < SHARES["second_object"]:
            second = self._describe(self.objects[verb].sample(rng), rng)
            objects += [second] if second.word != objects[0].word else []
        if rng.random() >= SHARES["place"]:
            return Fact(subject, verb, tuple(objects), year=year)
        place = self._describe(self.places[verb].sample(rng), rng)
        return Fact(subject, verb, tuple(objects), None, rng.choice(PREPOSITIONS), place, year)

    def _describe(self, noun: str, rng: random.Random) -> Noun:
        described = rng.random() < SHARES["adjective"]
        return Noun(noun, self.adjectives[noun].sample(rng) if described else None)


def build_facts(seed: int) -> FactTable:
    """Draws the fact table: the company that words keep depends on the seed, the words do not.

    Within a topic every agent, thing and place is usual for some verb; the last subject, object and adjective
    of each list comes from any topic, so that words of a topic differ in their company.
    """
    rng = random.Random(f"facts/{seed}")
    concepts = list(load_concepts())
    rng.shuffle(concepts)  # ranks within topics
    topics = WeightedWords.of(list(dict.fromkeys(concept.topic for concept in concepts)))
    by_role = {role: [c.word for c in concepts if c.role == role] for role in ("agent", "thing", "place", "adjective")}
    in_topic: dict[tuple[str, str], list[str]] = {}
    for concept in concepts:
        in_topic.setdefault((concept.topic, concept.role), []).append(concept.word)

    verbs = {topic: WeightedWords.of(in_topic[topic, "verb"]) for topic in topics.words}
    table = FactTable(topics, verbs, {}, {}, {}, {}, {})
    for topic in topics.words:
        for turn, verb in enumerate(verbs[topic].words):
            table.subjects[verb] = _usual(in_topic[topic, "agent"], by_role["agent"], turn, SUBJECTS_PER_VERB, rng)
            table.objects[verb] = _usual(in_topic[topic, "thing"], by_role["thing"], turn, OBJECTS_PER_VERB, rng)
            table.places[verb] = _usual(in_topic[topic, "place"], [], turn, PLACES_PER_VERB, rng)
        nouns = [word for role in ("agent", "thing", "place") for word in in_topic[topic, role]]
        rng.shuffle(nouns)
        table.nouns[topic] = WeightedWords.of(nouns)
        for turn, noun in enumerate(nouns):
            own = ADJECTIVES_PER_NOUN - 1
            table.adjectives[noun] = _usual(in_topic[topic, "adjective"], by_role["adjective"], turn, own, rng)
    return table


def _usual(own: list[str], anywhere: list[str], turn: int, count: int, rng: random.Random) -> WeightedWords:
    """Takes `count` words of the topic, starting at another one each turn, and one more from anywhere."""
    chosen = [own[(turn + step) % len(own)] for step in range(count)]
    others = [word for word in anywhere if word not in own]
    return WeightedWords.of(chosen + ([rng.choice(others)] if others else []))


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
