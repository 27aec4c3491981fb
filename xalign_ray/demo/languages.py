"""The languages of the embedded world: English, three invented ones, and an inverted copy of English.

The invented languages are honest about it: their codes are from BCP-47's private-use range (qaa..qtz), their words are
drawn from syllables of a real script and mean nothing to its readers.

| code | script     | order of words                                      | articles |
| ---- | ---------- | --------------------------------------------------- | -------- |
| en   | Latin      | subject verb object, prepositions, adjective noun   | no       |
| qgr  | Greek      | subject verb object, prepositions, noun adjective   | yes      |
| qdv  | Devanagari | subject object verb, postpositions, adjective noun  | no       |
| qge  | Georgian   | verb subject object, prepositions, noun adjective   | no       |
| qhy  | Armenian   | English, letter by letter, every sentence backwards | no       |
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from xalign_ray.demo.concepts import load_concepts

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
