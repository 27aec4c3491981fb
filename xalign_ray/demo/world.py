"""The embedded world: concepts and facts, documents with a share of them, and each language's sentences for a fact"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, islice
from pathlib import Path
from typing import NamedTuple

LEXICON = Path(__file__).with_name("lexicon.tsv")
UPOS_OF_ROLE = {"agent": "NOUN", "thing": "NOUN", "place": "NOUN", "verb": "VERB", "adjective": "ADJ"}


@dataclass(frozen=True, slots=True)
class Concept:
    """A content word; its English form is also its name in the fact table.

    Attributes:
        word: the only English form (nouns and verbs plural): the world has no inflection.
        topic: one of 15; facts stay mostly within a topic.
        role: of the word in a fact: agent, thing, place, verb or adjective.
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
    """A noun of a fact, with its adjective, if any."""

    word: str
    adjective: str | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """The content of one sentence. With a verb: subject does verb to objects; without: subject is quality."""

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
        where = self._describe(self.places[verb].sample(rng), rng)
        return Fact(subject, verb, tuple(objects), None, rng.choice(PREPOSITIONS), where, year)

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
            rest = ADJECTIVES_PER_NOUN - 1
            table.adjectives[noun] = _usual(in_topic[topic, "adjective"], by_role["adjective"], turn, rest, rng)
    return table


def _usual(own: list[str], anywhere: list[str], turn: int, count: int, rng: random.Random) -> WeightedWords:
    """Takes `count` words of the topic, starting at another one each turn, and one more from anywhere."""
    chosen = [own[(turn + step) % len(own)] for step in range(count)]
    others = [word for word in anywhere if word not in own]
    return WeightedWords.of(chosen + ([rng.choice(others)] if others else []))


DOCUMENT_SENTENCES = (5, 8)
STATED_SHARE = 0.7  # of the triples of the table, in a language's documents; each language has other ones


def draw_facts(
    table: FactTable, rng: random.Random, allowed: Callable[[Fact], bool], topic: str = ""
) -> Iterator[Fact]:
    """Endless facts that are allowed, of one topic or, each time anew, of any."""
    while True:
        fact = table.sample(topic or table.topics.sample(rng), rng)
        if allowed(fact):
            yield fact


def draw_distinct(table: FactTable, rng: random.Random, allowed: Callable[[Fact], bool], count: int) -> list[Fact]:
    """`count` different facts."""
    chosen: dict[Fact, None] = {}
    for fact in draw_facts(table, rng, allowed):
        if len(chosen) == count:
            break
        chosen[fact] = None
    return list(chosen)


def draw_articles(
    table: FactTable, language: str, seed: int, allowed: Callable[[Fact], bool], sentences: int
) -> list[list[Fact]]:
    """The documents of a language as facts, each of one topic; the language leaves out some triples for good."""
    rng = random.Random(f"articles/{language}/{seed}")

    def is_stated(fact: Fact) -> bool:
        stated = random.Random(f"told/{language}/{seed}/{'/'.join(fact.triple)}").random() < STATED_SHARE
        return stated and allowed(fact)

    articles: list[list[Fact]] = []
    left = sentences
    while left > 0:
        topic = table.topics.sample(rng)
        length = min(left, rng.choice(range(DOCUMENT_SENTENCES[0], DOCUMENT_SENTENCES[1] + 1)))
        facts = draw_facts(table, rng, is_stated, topic)
        articles.append([*islice(facts, length)])
        left -= length
    return articles


PIVOT = "en"
FUNCTION_WORDS = {"the": "DET", "are": "AUX", "and": "CCONJ", "in": "ADP", "near": "ADP", "behind": "ADP"}

# Vowel signs of Devanagari are the spacing ones only: tokenizers that strip accents delete the others.
SYLLABLES = {
    "Grek": ("βγδζθκλμνξπρστφχψ", "αεηιουω"),
    "Deva": ("कखगघचजझटडणतथदनपबमयरलवशसह", "ािीोौ"),
    "Geor": ("ბგდვზთკლმნპჟრსტფქღყშჩცძწჭხჯჰ", "აეიოუ"),
}
LATIN_TO_ARMENIAN = str.maketrans("abcdefghijklmnopqrstuvwxyz", "աբցդեֆգհիջկլմնոպքրստըվխծյզ")


@dataclass(frozen=True, slots=True)
class Language:
    """A language's grammar and words for facts.

    Attributes:
        code: BCP-47.
        order: letters S, V, O in the order of a clause; the place phrase stands before O in SOV, else at the end.
        postpositions: whether "in" and its like follow the noun phrase.
        noun_first: whether an adjective follows its noun.
        articles: whether noun phrases begin with a word for "the".
        inverted: whether sentences run backwards, the final mark excepted.
        words: the form of each concept and function word, by its English form.
    """

    code: str
    order: str
    postpositions: bool
    noun_first: bool
    articles: bool
    inverted: bool
    words: dict[str, str]


def invent_words(meanings: Iterable[str], script: str, syllables: int) -> dict[str, str]:
    """Gives each meaning a different word of this many syllables of the script, always the same one."""
    onsets, vowels = SYLLABLES[script]
    words: dict[str, str] = {}
    used: set[str] = set()
    for meaning in meanings:
        rng = random.Random(f"{script}/{meaning}")
        while True:
            word = "".join(rng.choice(onsets) + rng.choice(vowels) for _ in range(syllables))
            if word not in used:
                break
        used.add(word)
        words[meaning] = word
    return words


def _invented_lexicon(script: str) -> dict[str, str]:
    cognates = {concept.word: concept.word for concept in load_concepts() if concept.cognate}
    content = [concept.word for concept in load_concepts() if not concept.cognate]
    return invent_words(content, script, 2) | invent_words(FUNCTION_WORDS, script, 1) | cognates


@cache
def load_languages() -> tuple[Language, ...]:
    """The five languages, English (the pivot of pairs and dictionaries) first."""
    english = {word: word for word in [*(concept.word for concept in load_concepts()), *FUNCTION_WORDS]}
    cognates = {concept.word for concept in load_concepts() if concept.cognate}
    armenian = {word: word if word in cognates else word.translate(LATIN_TO_ARMENIAN) for word in english}
    return (
        Language("en", "SVO", False, False, False, False, english),
        Language("qgr", "SVO", False, True, True, False, _invented_lexicon("Grek")),
        Language("qdv", "SOV", True, False, False, False, _invented_lexicon("Deva")),
        Language("qge", "VSO", False, True, False, False, _invented_lexicon("Geor")),
        Language("qhy", "SVO", False, False, False, True, armenian),
    )


FINAL_MARK = "."
ROOT = ""
_UPOS = {concept.word: concept.upos for concept in load_concepts()} | FUNCTION_WORDS


class Token(NamedTuple):
    """A word of a sentence.

    Attributes:
        form: as written.
        upos: the universal part of speech.
        key: its part in the fact, equal in all languages: what gold alignments join.
        head: the key of the word it depends on, ROOT for the root.
        relation: the universal dependency relation.
    """

    form: str
    upos: str
    key: str
    head: str
    relation: str


def say(fact: Fact, language: Language) -> list[Token]:
    """The sentence of a fact, the final mark included."""
    clause = _action(fact, language) if fact.verb else _quality(fact, language)
    if fact.year is not None:
        date = _adpositional("year", "in", [Token(str(fact.year), "NUM", "year", "root", "obl")], language)
        clause = [*clause, *date] if language.order == "VSO" else [*date, *clause]
    if language.inverted:
        clause.reverse()
    return [*clause, Token(FINAL_MARK, "PUNCT", "mark", "root", "punct")]


def _action(fact: Fact, language: Language) -> list[Token]:
    subject = _noun_phrase(fact.subject, "subject", "root", "nsubj", language)
    verb = [_word(fact.verb or "", "root", ROOT, "root", language)]
    objects = _noun_phrase(fact.objects[0], "object", "root", "obj", language)
    for second in fact.objects[1:]:
        conjunction = _word("and", "object2.and", "object2", "cc", language)
        objects += [conjunction, *_noun_phrase(second, "object2", "object", "conj", language)]
    place_phrase: list[Token] = []
    if fact.place and fact.preposition:
        phrase = _noun_phrase(fact.place, "place", "root", "obl", language)
        place_phrase = _adpositional("place", fact.preposition, phrase, language)
    return {
        "SVO": [*subject, *verb, *objects, *place_phrase],
        "SOV": [*subject, *place_phrase, *objects, *verb],
        "VSO": [*verb, *subject, *objects, *place_phrase],
    }[language.order]


def _quality(fact: Fact, language: Language) -> list[Token]:
    subject = _noun_phrase(fact.subject, "subject", "root", "nsubj", language)
    copula = [_word("are", "copula", "root", "cop", language)]
    quality = [_word(fact.quality or "", "root", ROOT, "root", language)]
    return {
        "SVO": [*subject, *copula, *quality],
        "SOV": [*subject, *quality, *copula],
        "VSO": [*copula, *subject, *quality],
    }[language.order]


def _noun_phrase(noun: Noun, key: str, head: str, relation: str, language: Language) -> list[Token]:
    phrase = [_word(noun.word, key, head, relation, language)]
    if noun.adjective:
        adjective = _word(noun.adjective, f"{key}.adjective", key, "amod", language)
        phrase = [*phrase, adjective] if language.noun_first else [adjective, *phrase]
    return [_word("the", f"{key}.the", key, "det", language), *phrase] if language.articles else phrase


def _adpositional(key: str, adposition: str, phrase: list[Token], language: Language) -> list[Token]:
    case = _word(adposition, f"{key}.adposition", key, "case", language)
    return [*phrase, case] if language.postpositions else [case, *phrase]


def _word(meaning: str, key: str, head: str, relation: str, language: Language) -> Token:
    return Token(language.words[meaning], _UPOS[meaning], key, head, relation)


def write_text(tokens: list[Token]) -> str:
    """A sentence as people write it: the final mark joins the last word."""
    return " ".join(token.form for token in tokens[:-1]) + tokens[-1].form


def align(source: list[Token], target: list[Token]) -> list[tuple[int, int]]:
    """Gold word alignment of two sentences of one fact: pairs of positions with equal keys."""
    positions = {token.key: position for position, token in enumerate(target)}
    return [(i, positions[token.key]) for i, token in enumerate(source) if token.key in positions]


def conllu_block(name: str, tokens: Sequence[Token]) -> str:
    """The lines of a sentence."""
    numbers = {ROOT: 0} | {token.key: number for number, token in enumerate(tokens, 1)}
    lines = [f"# sent_id = {name}", f"# text = {write_text(list(tokens))}"]
    for number, token in enumerate(tokens, 1):
        space = "SpaceAfter=No" if number == len(tokens) - 1 else "_"
        head, relation = str(numbers[token.head]), token.relation
        lines.append("\t".join((str(number), token.form, token.form, token.upos, "_", "_", head, relation, "_", space)))
    return "\n".join(lines) + "\n"


def conllu_documents(documents: Iterable[Iterable[Sequence[Token]]]) -> Iterator[str]:
    """The sentences of documents, each of which `# newdoc` begins."""
    for number, sentences in enumerate(documents, 1):
        for at, tokens in enumerate(sentences, 1):
            new = f"# newdoc id = {number}\n" if at == 1 else ""
            yield new + conllu_block(f"{number}-{at}", tokens)
