"""Names and questions of the embedded world: real formats, tags and answers that mean the same in every language."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from xalign_ray.demo.world import Fact, Noun, load_languages, say
from xalign_ray.demo.writer import LABELLED_ROWS, tag_names
from xalign_ray.tasks.registry import TUNED_TASKS

MLQA, NER = (TUNED_TASKS[name] for name in ("mlqa", "ner"))

LANGUAGES = {language.code: language for language in load_languages()}
FACT = Fact(
    Noun("cooks", "warm"), "bake", (Noun("loaves"), Noun("coins")), preposition="in", place=Noun("kitchens"), year=1950
)


def test_names_are_people_places_and_things_of_some_topics_with_their_adjectives():
    tokens = say(FACT, LANGUAGES["en"])
    assert [f"{token.form}/{tag}" for token, tag in zip(tokens, tag_names(FACT, tokens), strict=True)] == [
        "in/O", "1950/O", "warm/B-PER", "cooks/I-PER", "bake/O", "loaves/O", "and/O", "coins/B-ORG", "in/O",
        "kitchens/B-LOC", "./O",
    ]  # fmt: skip
    greek = say(FACT, LANGUAGES["qgr"])
    assert [tag for token, tag in zip(greek, tag_names(FACT, greek), strict=True) if "subject" in token.key] == [
        "O", "B-PER", "I-PER"
    ]  # fmt: skip


def test_names_are_read_in_every_language_and_have_the_same_kinds(world: Path):
    found = NER.find([world / "ner"])
    for split, files in found.items():
        assert sorted(files) == sorted(LANGUAGES)
        for language, path in files.items():
            sentences = NER.read(path, language)
            assert len(sentences) == LABELLED_ROWS[split]
            assert NER.classes_of(sentences) == ("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER")
            tags = Counter(tag for sentence in sentences for tag in sentence.tags)
            assert 0.3 < tags["O"] / tags.total() < 0.75


def test_questions_are_read_in_every_pair_and_translate_each_other_by_id(world: Path):
    found = MLQA.find([world / "mlqa"])
    others = sorted(set(LANGUAGES) - {"en"})
    assert sorted(found["train"]) == sorted(found["dev"]) == sorted(LANGUAGES)
    assert set(found["test"]) == {*LANGUAGES, *(f"en-{code}" for code in others), *(f"{code}-en" for code in others)}
    for split, files in found.items():
        read = {name: MLQA.read(path, name) for name, path in files.items()}
        for questions in read.values():
            assert [question.key for question in questions] == [f"{split}-{n}" for n in range(LABELLED_ROWS[split])]
            assert all(len(question.context.split(".")) == 6 for question in questions)
        for code in others:
            meaning = {form: word for word, form in LANGUAGES[code].words.items()}
            for english, other in zip(read["en"], read[code], strict=True):
                if other.answers:
                    words = {meaning[word] for word in other.answers[0].text.split()}
                    assert words == set(english.answers[0].text.split())
    assert [len(question.answers) for question in MLQA.read(found["train"]["qdv"], "qdv")[:21]] == [1] * 19 + [0, 1]


def test_the_question_names_one_fact_of_the_context_and_not_its_answer(world: Path):
    path = MLQA.find([world / "mlqa"])["test"]["en"]
    for question in MLQA.read(path, "en"):
        subject_and_verb = question.question.removesuffix(" ?")
        sentences = [sentence for sentence in question.context.split(".") if subject_and_verb in sentence]
        assert len(sentences) == 1
        assert f"{subject_and_verb} {question.answers[0].text}" in sentences[0]
