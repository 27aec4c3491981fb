"""Writes the embedded world to a folder, in the file formats of the real data; the manifest comes last."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from xalign_ray.demo.facts import Fact, FactTable, build_facts, draw_articles, draw_distinct, load_concepts
from xalign_ray.demo.grammar import (
    PIVOT,
    Language,
    align,
    conllu_block,
    conllu_documents,
    load_languages,
    say,
    write_text,
)
from xalign_ray.demo.labelled import ANSWER_ROWS, LABELLED_ROWS, answer_files, labelled_files
from xalign_ray.work.artifacts import MANIFEST, hash_file, whole_manifest, write_atomic, write_manifest

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


WORLD_VERSION = 3  # raise it when the same arguments would write other files
TAGGED_SENTENCES = {"train": 1000, "dev": 200, "test": 300}


class _World:
    """The folder being written, and what may not be said in training text."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.table: FactTable = build_facts(seed)
        self.reserved: set[Fact] = set()
        self.hashes: dict[str, str] = {}

    def rng(self, purpose: str) -> random.Random:
        return random.Random(f"{purpose}/{self.seed}")

    def allowed(self, fact: Fact) -> bool:
        return fact not in self.reserved

    def write(self, name: str, lines: Iterable[str]) -> None:
        path = self.folder / name
        write_atomic(path, "".join(f"{line}\n" for line in lines))
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
        retrieval_pairs: Translated sentences a pair whose facts no other file tells.
    """
    (folder / MANIFEST).unlink(missing_ok=True)
    english, *others = load_languages()
    assert english.code == PIVOT
    world = _World(folder, seed)
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
    return manifest is not None and manifest.get("version") == WORLD_VERSION


def _write_retrieval(world: _World, english: Language, language: Language, count: int) -> None:
    facts = draw_distinct(world.table, world.rng(f"retrieval/{language.code}"), world.allowed, count)
    world.reserved.update(facts)
    stem = f"tatoeba/tatoeba.{language.code}-{PIVOT}"
    for own in (language, english):
        world.write(f"{stem}.{own.code}", (write_text(say(fact, own)) for fact in facts))


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
        said = ((say(fact, language) for fact in article.facts) for article in articles)
        world.write(f"trees/{language.code}.conllu", conllu_documents(said))


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
        "version": WORLD_VERSION,
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
