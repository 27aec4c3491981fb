"""The languages of the embedded world, and how each says a fact: its words, their order, its dependency tree"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from xalign_ray.demo.facts import Fact, Noun, load_concepts

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
    """How a language says a fact.

    Attributes:
        code: BCP-47.
        script: ISO 15924.
        order: letters S, V, O in the order of a clause; the place phrase stands before O in SOV, else at the end.
        postpositions: whether "in" and its like follow the noun phrase.
        noun_first: whether an adjective follows its noun.
        articles: whether noun phrases begin with a word for "the".
        inverted: whether sentences are said backwards, the final mark excepted.
        words: the form of each concept and function word, by its English form.
    """

    code: str
    script: str
    order: str
    postpositions: bool
    noun_first: bool
    articles: bool
    inverted: bool
    words: dict[str, str]


def invent_words(meanings: Iterable[str], script: str, syllables: int) -> dict[str, str]:
    """Gives each meaning a word of its own, always the same one, of so many syllables of the script."""
    onsets, vowels = SYLLABLES[script]
    words: dict[str, str] = {}
    taken: set[str] = set()
    for meaning in meanings:
        rng = random.Random(f"{script}/{meaning}")
        while True:
            word = "".join(rng.choice(onsets) + rng.choice(vowels) for _ in range(syllables))
            if word not in taken:
                break
        taken.add(word)
        words[meaning] = word
    return words


def _invented_lexicon(script: str) -> dict[str, str]:
    cognates = {concept.word: concept.word for concept in load_concepts() if concept.cognate}
    content = [concept.word for concept in load_concepts() if not concept.cognate]
    return invent_words(content, script, 2) | invent_words(FUNCTION_WORDS, script, 1) | cognates


def _english_lexicon() -> dict[str, str]:
    return {word: word for word in [*(concept.word for concept in load_concepts()), *FUNCTION_WORDS]}


def _armenian_lexicon() -> dict[str, str]:
    cognates = {concept.word for concept in load_concepts() if concept.cognate}
    return {word: word if word in cognates else word.translate(LATIN_TO_ARMENIAN) for word in _english_lexicon()}


@cache
def load_languages() -> tuple[Language, ...]:
    """The five languages, English (the pivot of pairs and dictionaries) first."""
    return (
        Language("en", "Latn", "SVO", False, False, False, False, _english_lexicon()),
        Language("qgr", "Grek", "SVO", False, True, True, False, _invented_lexicon("Grek")),
        Language("qdv", "Deva", "SOV", True, False, False, False, _invented_lexicon("Deva")),
        Language("qge", "Geor", "VSO", False, True, False, False, _invented_lexicon("Geor")),
        Language("qhy", "Armn", "SVO", False, False, False, True, _armenian_lexicon()),
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
    place: list[Token] = []
    if fact.place and fact.preposition:
        phrase = _noun_phrase(fact.place, "place", "root", "obl", language)
        place = _adpositional("place", fact.preposition, phrase, language)
    return {
        "SVO": [*subject, *verb, *objects, *place],
        "SOV": [*subject, *place, *objects, *verb],
        "VSO": [*verb, *subject, *objects, *place],
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
    """Gold word alignment of two sentences that say one fact: pairs of positions with equal keys."""
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
        for place, tokens in enumerate(sentences, 1):
            new = f"# newdoc id = {number}\n" if place == 1 else ""
            yield new + conllu_block(f"{number}-{place}", tokens)
