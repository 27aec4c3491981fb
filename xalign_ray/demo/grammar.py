"""Says a fact in a language: words in the language's order, with tags, heads, and keys that align translations."""

from __future__ import annotations

from typing import NamedTuple

from xalign_ray.demo.concepts import load_concepts
from xalign_ray.demo.facts import Fact, Noun
from xalign_ray.demo.languages import FUNCTION_WORDS, Language

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
