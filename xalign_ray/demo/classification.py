"""The labelled sets of the embedded world: XNLI, PAWS-X and MLDoc in their files' formats, told from the fact table.

Their labels follow from the facts, so that what they ask for can be learned; as in the real sets, a good part of it
shows in the second text alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

from xalign_ray.demo.facts import YEARS, Fact, FactTable, Noun, draw_facts, load_concepts
from xalign_ray.demo.grammar import PIVOT, Language, conllu_documents, say, write_text

LABELLED_ROWS = {"train": 600, "dev": 150, "test": 200}
NEWS_TOPICS = ("CCAT", "ECAT", "GCAT", "MCAT")
NEWS_SENTENCES = 3

Files = Iterator[tuple[str, Iterator[str]]]  # a file's name, and its lines
Pair = tuple[Fact, Fact, str]  # what the two texts say, and the label
Row = tuple[str, str, str]


def labelled_files(
    table: FactTable, seed: int, allowed: Callable[[Fact], bool], languages: Sequence[Language]
) -> Files:
    """All files of the three sets, in all languages.

    Rows of inference and paraphrases translate each other, as the real test sets and translated training sets do; the
    news of each language are its own.
    """
    facts = draw_facts(table, random.Random(f"xnli/{seed}"), allowed)
    yield from _pair_files(
        _lay_out_inference, _infer(facts, random.Random(f"xnli pairs/{seed}"), allowed, table), languages
    )
    facts = draw_facts(table, random.Random(f"pawsx/{seed}"), allowed)
    stated = _paraphrase(facts, random.Random(f"pawsx pairs/{seed}"), allowed, table)
    yield from _pair_files(_lay_out_paraphrases, stated, languages)
    for language in languages:
        yield from _news_files(table, random.Random(f"mldoc/{language.code}/{seed}"), allowed, language)


def _pair_files(
    format_rows: Callable[[str, str, Iterator[Row]], tuple[str, Iterator[str]]],
    pairs: Iterator[Pair],
    languages: Sequence[Language],
) -> Files:
    for split, count in LABELLED_ROWS.items():
        drawn = list(islice(pairs, count))
        for language in languages:
            rows = (
                (write_text(say(first, language)), write_text(say(second, language)), label)
                for first, second, label in drawn
            )
            name, lines = format_rows(split, language.code, rows)
            yield name, lines
            if language.code == PIVOT and format_rows is _lay_out_inference:  # trees, for `data derive`
                said = ([say(fact, language)] for first, second, _ in drawn for fact in (first, second))
                yield f"{name}.conllu", conllu_documents(said)


def _lay_out_inference(split: str, code: str, rows: Iterator[Row]) -> tuple[str, Iterator[str]]:
    """XNLI's translated training files have a header and their own word for contradiction, XTREME's others have not."""
    if split != "train":
        return f"xnli/{split}-{code}.tsv", ("\t".join(row) + "\r" for row in rows)
    lines = ("\t".join(row).replace("\tcontradiction", "\tcontradictory") for row in rows)
    return f"xnli/multinli.train.{code}.tsv", chain(["premise\thypo\tlabel"], lines)


def _lay_out_paraphrases(split: str, code: str, rows: Iterator[Row]) -> tuple[str, Iterator[str]]:
    return f"pawsx/{split}-{code}.tsv", ("\t".join(row) + "\r" for row in rows)


def _infer(
    facts: Iterator[Fact], rng: random.Random, allowed: Callable[[Fact], bool], table: FactTable
) -> Iterator[Pair]:
    """A fact with trimmings: the bare fact follows, one of another thing contradicts, other trimmings are new.

    Labels take turns.
    """
    turn = 0
    things = [concept.word for concept in load_concepts() if concept.role == "thing"]
    for fact in facts:
        if not fact.verb:
            continue
        bare = Fact(Noun(fact.subject.word), fact.verb, (Noun(fact.objects[0].word),))
        if bare == fact:
            continue
        others = [thing for thing in things if thing not in {noun.word for noun in fact.objects}]
        adjective = table.adjectives[fact.subject.word].sample(rng)
        hypothesis, label = (
            (bare, "entailment"),
            (replace(bare, objects=(Noun(rng.choice(others)),)), "contradiction"),
            (replace(bare, subject=Noun(fact.subject.word, adjective), year=rng.choice(YEARS)), "neutral"),
        )[turn % 3]
        stated_before = hypothesis.year is not None and hypothesis.year == fact.year
        if allowed(hypothesis) and not stated_before:
            turn += 1
            yield fact, hypothesis, label


def _paraphrase(
    facts: Iterator[Fact], rng: random.Random, allowed: Callable[[Fact], bool], table: FactTable
) -> Iterator[Pair]:
    """Who does it to two things; the things in another order are the same news, doer and thing exchanged are not."""
    for fact in facts:
        if not fact.verb:
            continue
        first, *_ = fact.objects
        second = Noun(table.objects[fact.verb].sample(rng))
        if len({first.word, second.word, fact.subject.word}) < 3:
            continue
        both = replace(fact, objects=(first, second))
        other, label = rng.choice(
            (
                (replace(both, objects=(second, first)), "1"),
                (replace(both, subject=first, objects=(fact.subject, second)), "0"),
            )
        )
        if allowed(both) and allowed(other):
            yield both, other, label


def _news_files(table: FactTable, rng: random.Random, allowed: Callable[[Fact], bool], language: Language) -> Files:
    topics = table.topics.words[: len(NEWS_TOPICS)]
    for split, count in LABELLED_ROWS.items():
        rows = []
        for number in range(count):
            facts = islice(draw_facts(table, rng, allowed, topics[number % len(topics)]), NEWS_SENTENCES)
            text = " ".join(write_text(say(fact, language)) for fact in facts)
            rows.append(f"{NEWS_TOPICS[number % len(topics)]}\t{text}")
        rng.shuffle(rows)
        yield f"mldoc/{language.code}.{split}{'.1000' if split == 'train' else ''}", iter(rows)
