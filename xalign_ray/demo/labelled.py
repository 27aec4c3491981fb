"""The labelled files of the embedded world: XNLI, PAWS-X, MLDoc, PAN-X, SQuAD and MLQA, told from its facts.

Their labels follow from the facts, so that what they ask for can be learned; as in the real sets, a good part of it
shows in the second text alone.

The world has no proper names. What counts as one here is a noun with its adjective, without the article: who does
something is PER, where it is done is LOC, and things of four topics are ORG; other things are none.

A context of questions is an article; a question is one of its facts without object, place and year, and the object
answers it. Contexts and questions translate each other by id. Of the translated training file every twentieth answer
is lost, as in real ones.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from xalign_ray.demo.facts import YEARS, Fact, FactTable, Noun, draw_distinct, draw_facts, load_concepts
from xalign_ray.demo.grammar import PIVOT, Language, Token, conllu_documents, say, write_text

LABELLED_ROWS = {"train": 600, "dev": 150, "test": 200}
NEWS_TOPICS = ("CCAT", "ECAT", "GCAT", "MCAT")
NEWS_SENTENCES = 3
ANSWER_ROWS = {"train": 600, "dev": 150, "test": 200}
ORGANISED = frozenset({"trade", "school", "court", "music"})
CONTEXT_FACTS = 5
LOST = 20
QUESTION_MARK = "?"

Allowed = Callable[[Fact], bool]
Files = Iterator[tuple[str, Iterator[str]]]  # a file's name, and its lines
Pair = tuple[Fact, Fact, str]  # what the two texts say, and the label
Row = tuple[str, str, str]


def labelled_files(table: FactTable, seed: int, allowed: Allowed, languages: Sequence[Language]) -> Files:
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


def answer_files(
    table: FactTable, seed: int, allowed: Allowed, languages: Sequence[Language]
) -> Iterator[tuple[str, list[str]]]:
    """All these files and their lines.

    Args:
        table: what the world tells.
        seed: of the facts that are drawn.
        allowed: whether a fact may be told.
        languages: English first.
    """
    for language in languages:
        yield from _list_names(table, language, seed, allowed)
    yield from _list_questions(table, languages, seed, allowed)


def _list_names(table: FactTable, language: Language, seed: int, allowed: Allowed) -> Iterator[tuple[str, list[str]]]:
    """A word, a tab and its tag a line; an empty line between sentences."""
    facts = draw_distinct(table, random.Random(f"names/{language.code}/{seed}"), allowed, sum(ANSWER_ROWS.values()))
    start = 0
    for split, count in ANSWER_ROWS.items():
        lines = []
        for fact in facts[start : start + count]:
            tokens = say(fact, language)
            lines += [f"{token.form}\t{tag}" for token, tag in zip(tokens, tag_names(fact, tokens), strict=True)]
            lines.append("")
        yield f"ner/{split}-{language.code}.tsv", lines
        if language.code == PIVOT:
            said = ([say(fact, language)] for fact in facts[start : start + count])
            yield f"ner/{split}-{language.code}.tsv.conllu", list(conllu_documents(said))
        start += count


def tag_names(fact: Fact, tokens: Sequence[Token]) -> list[str]:
    """IOB2 tags of a fact's sentence."""
    nouns = {"subject": fact.subject, "place": fact.place, "object": None, "object2": None}
    nouns |= dict(zip(("object", "object2"), fact.objects, strict=False))
    kinds = {key: _KINDS.get(noun.word) for key, noun in nouns.items() if noun}
    tags = []
    before = None
    for token in tokens:
        key, _, part = token.key.partition(".")
        named = key if kinds.get(key) and part in ("", "adjective") else None
        tags.append(f"{'I' if named == before else 'B'}-{kinds[named]}" if named else "O")
        before = named
    return tags


def _list_questions(
    table: FactTable, languages: Sequence[Language], seed: int, allowed: Allowed
) -> Iterator[tuple[str, list[str]]]:
    """SQuAD's file for training and its translations; MLQA's, with English on either side."""
    english, *others = languages
    for split, count in ANSWER_ROWS.items():
        articles = _draw_articles(table, random.Random(f"questions/{split}/{seed}"), allowed, count)
        if split == "train":
            yield "mlqa/train-v1.1.json", _write_articles(articles, split, english, english)
            for language in others:
                name = f"mlqa/squad.translate.train.{PIVOT}-{language.code}.json"
                yield name, _write_articles(articles, split, language, language, LOST)
            continue
        pairs = [(language, language) for language in languages]
        if split == "test":
            pairs += [pair for language in others for pair in ((english, language), (language, english))]
        for context, question in pairs:
            name = f"mlqa/{split}-context-{context.code}-question-{question.code}.json"
            yield name, _write_articles(articles, split, context, question)


@dataclass(frozen=True, slots=True)
class _Article:
    """The facts of a context, and which of them is asked for."""

    facts: tuple[Fact, ...]
    asked: int


def _draw_articles(table: FactTable, rng: random.Random, allowed: Allowed, count: int) -> list[_Article]:
    """Articles in each of which one fact at least can be asked for: no other has its subject and verb."""
    articles = []
    while len(articles) < count:
        facts = draw_facts(table, rng, allowed, table.topics.sample(rng))
        stated = tuple(next(facts) for _ in range(CONTEXT_FACTS))
        news = Counter((fact.subject.word, fact.verb) for fact in stated)
        clear = [place for place, fact in enumerate(stated) if fact.verb and news[fact.subject.word, fact.verb] == 1]
        if clear:
            articles.append(_Article(stated, rng.choice(clear)))
    return articles


def _write_articles(
    articles: Sequence[_Article], split: str, context: Language, question: Language, lost: int = 0
) -> list[str]:
    """The one line of a file: a title, a context and its question for each article."""
    paragraphs = []
    for number, article in enumerate(articles):
        text, answer, start = _say_article(article, context)
        kept = not lost or number % lost != lost - 1
        answers = [{"text": answer, "answer_start": start}] if kept else [{"text": "", "answer_start": 0}]
        asked = _ask(article.facts[article.asked], question)
        paragraphs.append(
            {"context": text, "qas": [{"id": f"{split}-{number}", "question": asked, "answers": answers}]}
        )
    articles_of = [{"title": f"{split}-{number}", "paragraphs": [one]} for number, one in enumerate(paragraphs)]
    return [json.dumps({"version": "1.1", "data": articles_of}, ensure_ascii=False)]


def _say_article(article: _Article, language: Language) -> tuple[str, str, int]:
    """The context, the answer in it, and where the answer begins."""
    text, answer, start = "", "", 0
    for place, fact in enumerate(article.facts):
        text += " " if text else ""
        tokens = say(fact, language)
        if place == article.asked:
            said = [number for number, token in enumerate(tokens) if token.key in ("object", "object.adjective")]
            answer = _write(tokens[said[0] : said[-1] + 1])
            start = len(text) + len(_write(tokens[: said[0]])) + bool(said[0])
        text += write_text(tokens)
    return text, answer, start


def _ask(fact: Fact, language: Language) -> str:
    tokens = say(replace(fact, place=None, preposition=None, year=None), language)
    kept = [token for token in tokens[:-1] if token.key.partition(".")[0] not in ("object", "object2")]
    return f"{_write(kept)} {QUESTION_MARK}"


def _write(tokens: Sequence[Token]) -> str:
    return " ".join(token.form for token in tokens)


def _kind(role: str, topic: str) -> str | None:
    if role == "thing":
        return "ORG" if topic in ORGANISED else None
    return {"agent": "PER", "place": "LOC"}.get(role)


_KINDS: Mapping[str, str | None] = {concept.word: _kind(concept.role, concept.topic) for concept in load_concepts()}
