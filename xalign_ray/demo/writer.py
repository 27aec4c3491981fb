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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
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

LABELLED_ROWS = {"train": 600, "dev": 150, "test": 200}  # of each labelled set
TAGGED_SENTENCES = {"train": 1000, "dev": 200, "test": 300}
NEWS_TOPICS = ("CCAT", "ECAT", "GCAT", "MCAT")
NEWS_SENTENCES = 3
ORGANISED = frozenset({"trade", "school", "court", "music"})
CONTEXT_FACTS = 5
LOST = 20
QUESTION_MARK = "?"
NOISE_SHARE = 0.1  # wrong entries of a dictionary, as a share of the right ones

Files = Iterator[tuple[str, Iterable[str]]]  # a file's name, and its lines
Pair = tuple[Fact, Fact, str]  # the facts of the two texts, and the label
ENGLISH, *OTHERS = load_languages()
LANGUAGES = (ENGLISH, *OTHERS)


@dataclass(frozen=True)
class World:
    """The facts of a seed, and those that no text but the retrieval pairs may have."""

    seed: int
    table: FactTable
    reserved: set[Fact] = field(default_factory=set)

    def rng(self, purpose: str) -> random.Random:
        """The draws of one purpose."""
        return random.Random(f"{purpose}/{self.seed}")

    def allowed(self, fact: Fact) -> bool:
        """Whether a text may have a fact."""
        return fact not in self.reserved

    def facts(self, rng: random.Random, topic: str = "") -> Iterator[Fact]:
        """Endless facts, of one topic or of any."""
        return draw_facts(self.table, rng, self.allowed, topic)

    def distinct(self, purpose: str, count: int) -> list[Fact]:
        """Different facts."""
        return draw_distinct(self.table, self.rng(purpose), self.allowed, count)


def _splits(facts: Sequence[Fact], sizes: Mapping[str, int]) -> Iterator[tuple[str, Sequence[Fact]]]:
    start = 0
    for split, count in sizes.items():
        yield split, facts[start : start + count]
        start += count


def _text(fact: Fact, language: Language) -> str:
    return write_text(say(fact, language))


def _words(tokens: Iterable[Token]) -> str:
    return " ".join(token.form for token in tokens)


def _pair_rows(pairs: Sequence[Pair], language: Language) -> list[str]:
    return [f"{_text(first, language)}\t{_text(second, language)}\t{label}" for first, second, label in pairs]


def _inference_files(world: World) -> Files:
    """XNLI's translated training files have a header and their own word for contradiction, XTREME's others have not."""
    pairs = _infer(world)
    for split, count in LABELLED_ROWS.items():
        drawn = list(islice(pairs, count))
        for language in LANGUAGES:
            name, rows = f"xnli/{split}-{language.code}.tsv", [f"{row}\r" for row in _pair_rows(drawn, language)]
            if split == "train":
                name = f"xnli/multinli.train.{language.code}.tsv"
                rows = [row[:-1].replace("\tcontradiction", "\tcontradictory") for row in rows]
                rows.insert(0, "premise\thypo\tlabel")
            yield name, rows
            if language is ENGLISH:  # trees, for `data derive`
                sentences = ([say(fact, language)] for first, second, _ in drawn for fact in (first, second))
                yield f"{name}.conllu", conllu_documents(sentences)


def _paraphrase_files(world: World) -> Files:
    pairs = _paraphrase(world)
    for split, count in LABELLED_ROWS.items():
        drawn = list(islice(pairs, count))
        for language in LANGUAGES:
            yield f"pawsx/{split}-{language.code}.tsv", (f"{row}\r" for row in _pair_rows(drawn, language))


def _infer(world: World) -> Iterator[Pair]:
    """A fact with trimmings: the bare fact follows, one of another thing contradicts, other trimmings are new.

    Labels take turns.
    """
    turn, rng = 0, world.rng("xnli pairs")
    things = [concept.word for concept in load_concepts() if concept.role == "thing"]
    for fact in world.facts(world.rng("xnli")):
        if not fact.verb:
            continue
        bare = Fact(Noun(fact.subject.word), fact.verb, (Noun(fact.objects[0].word),))
        if bare == fact:
            continue
        others = [thing for thing in things if thing not in {noun.word for noun in fact.objects}]
        adjective = world.table.adjectives[fact.subject.word].sample(rng)
        hypothesis, label = (
            (bare, "entailment"),
            (replace(bare, objects=(Noun(rng.choice(others)),)), "contradiction"),
            (replace(bare, subject=Noun(fact.subject.word, adjective), year=rng.choice(YEARS)), "neutral"),
        )[turn % 3]
        stated_before = hypothesis.year is not None and hypothesis.year == fact.year
        if world.allowed(hypothesis) and not stated_before:
            turn += 1
            yield fact, hypothesis, label


def _paraphrase(world: World) -> Iterator[Pair]:
    """Who does it to two things; the things in another order are the same news, doer and thing exchanged are not."""
    rng = world.rng("pawsx pairs")
    for fact in world.facts(world.rng("pawsx")):
        if not fact.verb:
            continue
        first, *_ = fact.objects
        second = Noun(world.table.objects[fact.verb].sample(rng))
        if len({first.word, second.word, fact.subject.word}) < 3:
            continue
        both = replace(fact, objects=(first, second))
        other, label = rng.choice(
            (
                (replace(both, objects=(second, first)), "1"),
                (replace(both, subject=first, objects=(fact.subject, second)), "0"),
            )
        )
        if world.allowed(both) and world.allowed(other):
            yield both, other, label


def _news_files(world: World) -> Files:
    topics = list(zip(NEWS_TOPICS, world.table.topics.words, strict=False))
    for language in LANGUAGES:
        rng = world.rng(f"mldoc/{language.code}")
        for split, count in LABELLED_ROWS.items():
            rows = []
            for number in range(count):
                label, topic = topics[number % len(topics)]
                facts = islice(world.facts(rng, topic), NEWS_SENTENCES)
                rows.append(f"{label}\t{' '.join(_text(fact, language) for fact in facts)}")
            rng.shuffle(rows)
            yield f"mldoc/{language.code}.{split}{'.1000' if split == 'train' else ''}", rows


def _name_files(world: World) -> Files:
    """A word, a tab and its tag a line; an empty line between sentences."""
    for language in LANGUAGES:
        for split, facts in _splits(
            world.distinct(f"names/{language.code}", sum(LABELLED_ROWS.values())), LABELLED_ROWS
        ):
            sentences = [say(fact, language) for fact in facts]
            lines = []
            for fact, tokens in zip(facts, sentences, strict=True):
                lines += [f"{token.form}\t{tag}" for token, tag in zip(tokens, tag_names(fact, tokens), strict=True)]
                lines.append("")
            yield f"ner/{split}-{language.code}.tsv", lines
            if language is ENGLISH:
                yield f"ner/{split}-{language.code}.tsv.conllu", conllu_documents([tokens] for tokens in sentences)


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


def _question_files(world: World) -> Files:
    """SQuAD's file for training and its translations; MLQA's, with English on either side."""
    for split, count in LABELLED_ROWS.items():
        articles = _articles(world, split, count)
        if split == "train":
            yield "mlqa/train-v1.1.json", [_squad(articles, split, ENGLISH, ENGLISH)]
            for language in OTHERS:
                name = f"mlqa/squad.translate.train.{PIVOT}-{language.code}.json"
                yield name, [_squad(articles, split, language, language, LOST)]
            continue
        pairs = [(language, language) for language in LANGUAGES]
        if split == "test":
            pairs += [pair for language in OTHERS for pair in ((ENGLISH, language), (language, ENGLISH))]
        for context, question in pairs:
            name = f"mlqa/{split}-context-{context.code}-question-{question.code}.json"
            yield name, [_squad(articles, split, context, question)]


def _articles(world: World, split: str, count: int) -> list[tuple[Sequence[Fact], int]]:
    """The facts of contexts, each with the number of one that a question can name by its subject and verb."""
    rng, articles = world.rng(f"questions/{split}"), []
    while len(articles) < count:
        facts = [*islice(world.facts(rng, world.table.topics.sample(rng)), CONTEXT_FACTS)]
        news = Counter((fact.subject.word, fact.verb) for fact in facts)
        clear = [number for number, fact in enumerate(facts) if fact.verb and news[fact.subject.word, fact.verb] == 1]
        if clear:
            articles.append((facts, rng.choice(clear)))
    return articles


def _squad(
    articles: Sequence[tuple[Sequence[Fact], int]], split: str, context: Language, question: Language, lost: int = 0
) -> str:
    """A file in SQuAD's JSON: a title, a context and its question for each article."""
    data = []
    for number, (facts, asked) in enumerate(articles):
        text, answer = _say_article(facts, asked, context)
        if lost and number % lost == lost - 1:
            answer = {"text": "", "answer_start": 0}
        name = f"{split}-{number}"
        entry = {"id": name, "question": _ask(facts[asked], question), "answers": [answer]}
        data.append({"title": name, "paragraphs": [{"context": text, "qas": [entry]}]})
    return json.dumps({"version": "1.1", "data": data}, ensure_ascii=False)


def _say_article(facts: Sequence[Fact], asked: int, language: Language) -> tuple[str, dict[str, Any]]:
    """The context, and the answer in it: the objects of one of its facts."""
    before = "".join(f"{_text(fact, language)} " for fact in facts[:asked])
    tokens = say(facts[asked], language)
    places = [number for number, token in enumerate(tokens) if token.key in ("object", "object.adjective")]
    begins = len(before) + len(_words(tokens[: places[0]])) + bool(places[0])
    answer = {"text": _words(tokens[places[0] : places[-1] + 1]), "answer_start": begins}
    return " ".join(_text(fact, language) for fact in facts), answer


def _ask(fact: Fact, language: Language) -> str:
    tokens = say(replace(fact, place=None, preposition=None, year=None), language)
    asked = [token for token in tokens[:-1] if token.key.partition(".")[0] not in ("object", "object2")]
    return f"{_words(asked)} {QUESTION_MARK}"


_KINDS = {
    concept.word: {"agent": "PER", "place": "LOC"}.get(concept.role, "ORG")
    for concept in load_concepts()
    if concept.role in ("agent", "place") or (concept.role == "thing" and concept.topic in ORGANISED)
}


def list_entries(source: Language, target: Language, seed: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """All right entries and, apart, the wrong ones: a word with the translation of another."""
    rng = random.Random(f"noise/{source.code}/{target.code}/{seed}")
    words = [concept.word for concept in load_concepts()]
    right = [(source.words[word], target.words[word]) for word in words]
    chosen = rng.sample(words, 2 * round(NOISE_SHARE * len(words)))
    wrong = [(source.words[a], target.words[b]) for a, b in zip(chosen[::2], chosen[1::2], strict=True)]
    return right, wrong


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


def _retrieval_files(world: World, count: int) -> Files:
    for language in OTHERS:
        facts = world.distinct(f"retrieval/{language.code}", count)
        world.reserved.update(facts)
        for side in (language, ENGLISH):
            yield f"tatoeba/tatoeba.{language.code}-{PIVOT}.{side.code}", (_text(fact, side) for fact in facts)


def _parallel_files(world: World, count: int) -> Files:
    for language in OTHERS:
        facts = world.distinct(f"parallel/{language.code}", count)
        pairs = [(say(fact, ENGLISH), say(fact, language)) for fact in facts]
        stem = f"parallel/train.{PIVOT}-{language.code}"
        for which, code in enumerate((PIVOT, language.code)):
            yield f"{stem}.{code}", (_words(pair[which]) for pair in pairs)
        yield f"{stem}.align", (" ".join(f"{i}-{j}" for i, j in align(*pair)) for pair in pairs)


def _dictionary_files(world: World) -> Files:
    for language in OTHERS:
        right, wrong = list_entries(ENGLISH, language, world.seed)
        rng, entries = world.rng(f"dictionary/{language.code}"), right + wrong
        rng.shuffle(entries)
        for ending, shown in (("txt", entries), ("shuffled.txt", shuffle_targets(entries, rng))):
            lines = (f"{source} {target}" for source, target in shown)
            yield f"dictionaries/{PIVOT}-{language.code}.{ending}", lines


def _document_files(world: World, sentences: int) -> Files:
    for language in LANGUAGES:
        articles = draw_articles(world.table, language.code, world.seed, world.allowed, sentences)
        documents = [
            {
                "id": number,
                "title": language.words[article[0].subject.word],
                "text": "\n".join(_text(fact, language) for fact in article),
            }
            for number, article in enumerate(articles)
        ]
        yield f"wiki/{language.code}.jsonl", (json.dumps(document, ensure_ascii=False) for document in documents)
        if language is ENGLISH:  # what `data derive` gives another word order
            trees = ((say(fact, ENGLISH) for fact in article) for article in articles)
            yield f"trees/{PIVOT}.conllu", conllu_documents(trees)


def _tagged_files(world: World) -> Files:
    for language in LANGUAGES:
        code = language.code
        facts = world.distinct(f"tagged/{code}", sum(TAGGED_SENTENCES.values()))
        for split, some in _splits(facts, TAGGED_SENTENCES):
            blocks = (conllu_block(f"{code}-{split}-{n}", say(fact, language)) for n, fact in enumerate(some, 1))
            yield f"pos/{code}.{split}.conllu", blocks


def _all_files(world: World, sentences: int, parallel_sentences: int, retrieval_pairs: int) -> Files:
    yield from _retrieval_files(world, retrieval_pairs)  # first: no other text has these facts
    yield from _parallel_files(world, parallel_sentences)
    yield from _document_files(world, sentences)
    for files in (_dictionary_files, _tagged_files, _inference_files, _paraphrase_files, _news_files, _name_files):
        yield from files(world)
    yield from _question_files(world)


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
    replaces = (whole_manifest(folder) or {}).get("kind") == "demo"  # files that are there: of an earlier world
    (folder / MANIFEST).unlink(missing_ok=True)
    world, hashes = World(seed, build_facts(seed)), {}
    for name, lines in _all_files(world, sentences, parallel_sentences, retrieval_pairs):
        path, content = folder / name, "".join(f"{line}\n" for line in lines).encode()
        if not replaces and path.is_file() and path.read_bytes() != content:
            raise ConfigError(f"{path} is there, and is not of the embedded world. Name another folder for that.")
        write_atomic(path, content)
        hashes[name] = hash_file(path)
    sizes = {"sentences": sentences, "parallel_sentences": parallel_sentences, "retrieval_pairs": retrieval_pairs}
    write_manifest(folder, {"kind": "demo", "code": package_code("demo"), "seed": seed, **sizes, "files": hashes})


def is_written(folder: Path) -> bool:
    """Whether a folder holds the whole world, as this version of the package writes it."""
    manifest = whole_manifest(folder)
    return manifest is not None and manifest.get("code") == package_code("demo")
