"""Writes the embedded world to a folder, in the file formats of the real data; the manifest comes last.

First its labelled files: XNLI, PAWS-X, MLDoc, PAN-X, SQuAD and MLQA. Their labels follow from the facts, so that what
they ask for can be learned; as in the real sets, a good part of it shows in the second text alone.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from xalign_ray.config.code import package_code
from xalign_ray.demo.world import (
    PIVOT,
    YEARS,
    Fact,
    FactTable,
    Language,
    Noun,
    Token,
    align,
    build_facts,
    conllu_block,
    conllu_documents,
    draw_articles,
    draw_distinct,
    draw_facts,
    load_concepts,
    load_languages,
    say,
    write_text,
)
from xalign_ray.errors import ConfigError
from xalign_ray.work.artifacts import MANIFEST, hash_file, whole_manifest, write_atomic, write_manifest

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
Pair = tuple[Fact, Fact, str]  # the facts of the two texts, and the label
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
                sentences = ([say(fact, language)] for first, second, _ in drawn for fact in (first, second))
                yield f"{name}.conllu", conllu_documents(sentences)


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
        table: the world's facts.
        seed: of the facts that are drawn.
        allowed: whether a fact may be used.
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
            sentences = ([say(fact, language)] for fact in facts[start : start + count])
            yield f"ner/{split}-{language.code}.tsv.conllu", list(conllu_documents(sentences))
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
    """The facts of a context, and the number of the one in question."""

    facts: tuple[Fact, ...]
    asked: int


def _draw_articles(table: FactTable, rng: random.Random, allowed: Allowed, count: int) -> list[_Article]:
    """Articles each with a fact that a question can name: no other has its subject and verb."""
    articles = []
    while len(articles) < count:
        facts = draw_facts(table, rng, allowed, table.topics.sample(rng))
        stated = tuple(next(facts) for _ in range(CONTEXT_FACTS))
        news = Counter((fact.subject.word, fact.verb) for fact in stated)
        clear = [number for number, fact in enumerate(stated) if fact.verb and news[fact.subject.word, fact.verb] == 1]
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
        has_answer = not lost or number % lost != lost - 1
        answers = [{"text": answer, "answer_start": start}] if has_answer else [{"text": "", "answer_start": 0}]
        asked = _ask(article.facts[article.asked], question)
        paragraphs.append(
            {"context": text, "qas": [{"id": f"{split}-{number}", "question": asked, "answers": answers}]}
        )
    articles_of = [
        {"title": f"{split}-{number}", "paragraphs": [paragraph]} for number, paragraph in enumerate(paragraphs)
    ]
    return [json.dumps({"version": "1.1", "data": articles_of}, ensure_ascii=False)]


def _say_article(article: _Article, language: Language) -> tuple[str, str, int]:
    """The context, the answer in it, and where the answer begins."""
    text, answer, start = "", "", 0
    for number, fact in enumerate(article.facts):
        text += " " if text else ""
        tokens = say(fact, language)
        if number == article.asked:
            answer_tokens = [
                number for number, token in enumerate(tokens) if token.key in ("object", "object.adjective")
            ]
            answer = _write(tokens[answer_tokens[0] : answer_tokens[-1] + 1])
            start = len(text) + len(_write(tokens[: answer_tokens[0]])) + bool(answer_tokens[0])
        text += write_text(tokens)
    return text, answer, start


def _ask(fact: Fact, language: Language) -> str:
    tokens = say(replace(fact, place=None, preposition=None, year=None), language)
    asked = [token for token in tokens[:-1] if token.key.partition(".")[0] not in ("object", "object2")]
    return f"{_write(asked)} {QUESTION_MARK}"


def _write(tokens: Sequence[Token]) -> str:
    return " ".join(token.form for token in tokens)


def _kind(role: str, topic: str) -> str | None:
    if role == "thing":
        return "ORG" if topic in ORGANISED else None
    return {"agent": "PER", "place": "LOC"}.get(role)


_KINDS: Mapping[str, str | None] = {concept.word: _kind(concept.role, concept.topic) for concept in load_concepts()}

NOISE_SHARE = 0.1  # wrong entries, as a share of the right ones


def list_entries(source: Language, target: Language, seed: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """All right entries and, apart, the wrong ones: a word with the translation of another."""
    rng = random.Random(f"noise/{source.code}/{target.code}/{seed}")
    words = [concept.word for concept in load_concepts()]
    right = [(source.words[word], target.words[word]) for word in words]
    wrong = [(source.words[word], target.words[other]) for word, other in _mismatches(words, rng)]
    return right, wrong


def _mismatches(words: list[str], rng: random.Random) -> list[tuple[str, str]]:
    chosen = rng.sample(words, 2 * round(NOISE_SHARE * len(words)))
    return list(zip(chosen[::2], chosen[1::2], strict=True))


def shuffle_targets(entries: list[tuple[str, str]], rng: random.Random) -> list[tuple[str, str]]:
    """The same source words and target words, no source word with a target that the entries give it."""
    sources = [source for source, _ in entries]
    targets = [target for _, target in entries]
    forbidden = set(entries)
    while True:
        rng.shuffle(targets)
        for position in range(len(targets)):
            if (sources[position], targets[position]) in forbidden:
                other = rng.randrange(len(targets))
                targets[position], targets[other] = targets[other], targets[position]
        shuffled = list(zip(sources, targets, strict=True))
        if forbidden.isdisjoint(shuffled):
            return shuffled


TAGGED_SENTENCES = {"train": 1000, "dev": 200, "test": 300}


class _World:
    """The folder being written, and the facts that training text may not have."""

    def __init__(self, folder: Path, seed: int, replaces: bool) -> None:
        self.folder = folder
        self.replaces = replaces  # files that are there: of an earlier world
        self.seed = seed
        self.table: FactTable = build_facts(seed)
        self.reserved: set[Fact] = set()
        self.hashes: dict[str, str] = {}

    def rng(self, purpose: str) -> random.Random:
        return random.Random(f"{purpose}/{self.seed}")

    def allowed(self, fact: Fact) -> bool:
        return fact not in self.reserved

    def write(self, name: str, lines: Iterable[str]) -> None:
        path, content = self.folder / name, "".join(f"{line}\n" for line in lines).encode()
        if not self.replaces and path.is_file() and path.read_bytes() != content:
            raise ConfigError(f"{path} is there, and is not of the embedded world. Name another folder for that.")
        write_atomic(path, content)
        self.hashes[name] = hash_file(path)


def write_demo(
    folder: Path,
    seed: int = 0,
    *,
    sentences: int = 6000,
    parallel_sentences: int = 2000,
    retrieval_pairs: int = 500,
) -> None:
    """Writes the embedded world: a small deterministic set of languages to learn and test with.

    It is a default, never a source of claims. Same arguments, same bytes.

    Args:
        folder: Where to; created if needed, files of an earlier world in it are replaced.
        seed: Decides the fact table and every sentence; the words of the languages are fixed.
        sentences: Sentences a language in its documents.
        parallel_sentences: Translated sentences a pair (English and another), apart from the documents.
        retrieval_pairs: Translated sentences a pair whose facts no other file has.

    Raises:
        ConfigError: a file of the folder has the name of one of the world's, and is another.
    """
    earlier = whole_manifest(folder) or {}
    (folder / MANIFEST).unlink(missing_ok=True)
    english, *others = load_languages()
    assert english.code == PIVOT
    world = _World(folder, seed, replaces=earlier.get("kind") == "demo")
    for language in others:
        _write_retrieval(world, english, language, retrieval_pairs)
    for language in others:
        _write_parallel(world, english, language, parallel_sentences)
        _write_dictionaries(world, english, language)
    for language in (english, *others):
        _write_documents(world, language, sentences)
        _write_tagged(world, language)
    for files in (labelled_files, answer_files):
        for name, lines in files(world.table, seed, world.allowed, (english, *others)):
            world.write(name, lines)
    sizes = {"sentences": sentences, "parallel_sentences": parallel_sentences, "retrieval_pairs": retrieval_pairs}
    write_manifest(folder, _describe(world, sizes))


def is_written(folder: Path) -> bool:
    """Whether a folder holds the whole world, as this version of the package writes it."""
    manifest = whole_manifest(folder)
    return manifest is not None and manifest.get("code") == package_code("demo")


def _write_retrieval(world: _World, english: Language, language: Language, count: int) -> None:
    facts = draw_distinct(world.table, world.rng(f"retrieval/{language.code}"), world.allowed, count)
    world.reserved.update(facts)
    stem = f"tatoeba/tatoeba.{language.code}-{PIVOT}"
    for side in (language, english):
        world.write(f"{stem}.{side.code}", (write_text(say(fact, side)) for fact in facts))


def _write_parallel(world: _World, english: Language, language: Language, count: int) -> None:
    facts = draw_distinct(world.table, world.rng(f"parallel/{language.code}"), world.allowed, count)
    pairs = [(say(fact, english), say(fact, language)) for fact in facts]
    stem = f"parallel/train.{PIVOT}-{language.code}"
    for which, code in enumerate((PIVOT, language.code)):
        world.write(f"{stem}.{code}", (" ".join(token.form for token in pair[which]) for pair in pairs))
    world.write(f"{stem}.align", (" ".join(f"{i}-{j}" for i, j in align(*pair)) for pair in pairs))


def _write_dictionaries(world: _World, english: Language, language: Language) -> None:
    right, wrong = list_entries(english, language, world.seed)
    rng = world.rng(f"dictionary/{language.code}")
    entries = right + wrong
    rng.shuffle(entries)
    stem = f"dictionaries/{PIVOT}-{language.code}"
    world.write(f"{stem}.txt", (f"{source} {target}" for source, target in entries))
    shuffled = shuffle_targets(entries, rng)
    world.write(f"{stem}.shuffled.txt", (f"{source} {target}" for source, target in shuffled))


def _write_documents(world: _World, language: Language, sentences: int) -> None:
    articles = draw_articles(world.table, language.code, world.seed, world.allowed, sentences)
    documents = (
        {
            "id": number,
            "title": language.words[article.facts[0].subject.word],
            "text": "\n".join(write_text(say(fact, language)) for fact in article.facts),
        }
        for number, article in enumerate(articles)
    )
    world.write(f"wiki/{language.code}.jsonl", (json.dumps(document, ensure_ascii=False) for document in documents))
    if language.code == PIVOT:  # what `data derive` gives another word order
        trees = ((say(fact, language) for fact in article.facts) for article in articles)
        world.write(f"trees/{language.code}.conllu", conllu_documents(trees))


def _write_tagged(world: _World, language: Language) -> None:
    rng = world.rng(f"tagged/{language.code}")
    facts = draw_distinct(world.table, rng, world.allowed, sum(TAGGED_SENTENCES.values()))
    start = 0
    for split, count in TAGGED_SENTENCES.items():
        numbered = enumerate(facts[start : start + count], 1)
        blocks = (conllu_block(f"{language.code}-{split}-{number}", say(fact, language)) for number, fact in numbered)
        world.write(f"pos/{language.code}.{split}.conllu", blocks)
        start += count


def _describe(world: _World, sizes: dict[str, int]) -> dict[str, Any]:
    concepts = load_concepts()
    languages = {
        language.code: {
            "script": language.script,
            "order": language.order,
            "postpositions": language.postpositions,
            "noun_first": language.noun_first,
            "articles": language.articles,
            "inverted": language.inverted,
            "invented": language.code != PIVOT,
        }
        for language in load_languages()
    }
    noise = {
        language.code: [list(entry) for entry in list_entries(load_languages()[0], language, world.seed)[1]]
        for language in load_languages()[1:]
    }
    return {
        "kind": "demo",
        "code": package_code("demo"),
        "seed": world.seed,
        **sizes,
        "labelled_rows": LABELLED_ROWS,
        "answer_rows": ANSWER_ROWS,
        "concepts": len(concepts),
        "cognates": [concept.word for concept in concepts if concept.cognate],
        "languages": languages,
        "dictionary_noise": noise,
        "files": world.hashes,
    }
