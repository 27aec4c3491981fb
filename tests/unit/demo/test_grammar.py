"""How the languages say one fact, and how words and facts come about."""

from __future__ import annotations

import pytest

from xalign_ray.demo.world import Fact, Noun, align, build_facts, load_concepts, load_languages, say

LANGUAGES = {language.code: language for language in load_languages()}
FACT = Fact(Noun("bakers", "old"), "bake", (Noun("loaves", "fresh"),), None, "in", Noun("kitchens"), 1987)


def gloss(fact: Fact, code: str) -> str:
    meanings = {form: word for word, form in LANGUAGES[code].words.items()}
    return " ".join(meanings.get(token.form, token.form) for token in say(fact, LANGUAGES[code]))


QUALITY = Fact(Noun("kitchens"), quality="warm")
SECOND = Fact(Noun("cooks"), "taste", (Noun("soups"), Noun("spices", "warm")))


@pytest.mark.parametrize(
    ("code", "action", "quality"),
    [
        ("en", "in 1987 old bakers bake fresh loaves in kitchens .", "kitchens are warm ."),
        ("qgr", "in 1987 the bakers old bake the loaves fresh in the kitchens .", "the kitchens are warm ."),
        ("qdv", "1987 in old bakers kitchens in fresh loaves bake .", "kitchens warm are ."),
        ("qge", "bake bakers old loaves fresh in kitchens in 1987 .", "are kitchens warm ."),
        ("qhy", "kitchens in loaves fresh bake bakers old 1987 in .", "warm are kitchens ."),
    ],
)
def test_each_language_has_its_word_order(code: str, action: str, quality: str) -> None:
    assert (gloss(FACT, code), gloss(QUALITY, code)) == (action, quality)


def test_second_objects_are_joined_by_and() -> None:
    assert gloss(SECOND, "qdv") == "cooks soups and warm spices taste ."


def test_alignment_leaves_articles_alone_where_the_other_side_has_none() -> None:
    assert align(say(QUALITY, LANGUAGES["qgr"]), say(QUALITY, LANGUAGES["qge"])) == [(1, 1), (2, 0), (3, 2), (4, 3)]


def test_no_two_meanings_share_a_word() -> None:
    for language in LANGUAGES.values():
        assert len(set(language.words.values())) == len(language.words)


def test_every_noun_and_verb_has_usual_company_from_its_topic() -> None:
    table = build_facts(seed=0)
    topic_of = {concept.word: concept.topic for concept in load_concepts()}
    for concept in load_concepts():
        if concept.role == "verb":
            for company in (table.subjects, table.objects):
                topics = [topic_of[word] for word in company[concept.word].words]
                assert topics[0] == concept.topic
                assert topics[-1] != concept.topic
            assert {topic_of[word] for word in table.places[concept.word].words} == {concept.topic}
        elif concept.upos == "NOUN":
            assert len(set(table.adjectives[concept.word].words)) == 3
