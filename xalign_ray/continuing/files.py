"""The files that a user names for `xalign continue`, as sources of a recipe, and their sentences."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from xalign_ray.config.language_codes import check_language
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import Corpus, Dictionary, ParallelCorpus
from xalign_ray.continuing.five_lines import FiveLines
from xalign_ray.continuing.methods import trains_head
from xalign_ray.continuing.query_set import CORPUS, read_query_set
from xalign_ray.continuing.sentence_sets import KeptText, PairSet, QuerySet, ScoredPairs, SentenceSet
from xalign_ray.errors import ConfigError
from xalign_ray.models.open import Opened
from xalign_ray.results.continued import THE_TEST
from xalign_ray.shards.prepared import read_test_pairs
from xalign_ray.sources.columns import FirstRows
from xalign_ray.sources.first_rows import find_dictionary_form
from xalign_ray.sources.formats import find_source, read
from xalign_ray.sources.language_id import codes_in_name, without_packing
from xalign_ray.sources.pair_checks import MAX_SHARE, PairChecks, check_sources
from xalign_ray.sources.pair_forms import (
    choose_pairs,
    choose_scored_columns,
    find_first_rows,
    look_at_pairs,
    read_pairs,
)
from xalign_ray.sources.records import Document
from xalign_ray.sources.stage import TESTS
from xalign_ray.tasks.retrieval import MAX_PAIRS, TranslatedSentences
from xalign_ray.tasks.scored_pairs import read_scored_rows
from xalign_ray.track.events import newest_data
from xalign_ray.work.mirror import data_of_run
from xalign_ray.work.run_folder import RunFolder
from xalign_ray.work.status_line import say

ROOT = Path()  # paths are relative to the current folder
FEW_KEPT = 100  # pairs or lines: the interval of fewer is often wider than 10 points
MAX_SIZED = 1_000  # pairs of a corpus from which the size of a pair is taken
TEXT_FORMATS = {".jsonl": "jsonl", ".parquet": "parquet", ".xml": "wikipedia", ".conllu": "conllu"}
TABLES = {".csv", ".tsv", ".xlsx", ".json"}


@dataclass(frozen=True)
class Data:
    """The user's files as sources of a recipe.

    Attributes:
        pairs, text, dictionaries: for training.
        tests, dev: pairs that are scored at the end and while it trains, where files of them are given.
        kept: what must not get worse.
        checks: of all pairs.
        notes: on files that are used or not, a sentence each.
    """

    pairs: Sequence[ParallelCorpus]
    tests: Sequence[ParallelCorpus]
    dev: Sequence[ParallelCorpus]
    text: Sequence[Corpus]
    dictionaries: Sequence[Dictionary]
    kept: Sequence[SentenceSet]
    checks: Sequence[PairChecks]
    notes: Sequence[str]


def look_at_data(lines: FiveLines, encoder: Opened, method: str, replay: float) -> Data:
    """Reads the first rows of all files, and checks all pairs.

    Args:
        method: the recipe below `continue/`.
        replay: share of the rows that are text.

    Raises:
        ConfigError: a file is ambiguous, or is kept and trained on.
        DataError: a file is missing or damaged.
    """
    pairs, tests, dev = (
        look_at_pairs(paths, lines.languages, lines.columns, split, lines.where) if paths else []
        for paths, split in ((lines.pairs, "train"), (lines.test, "test"), (lines.dev, "dev"))
    )
    kept = look_at_kept(lines.keep)
    reads_text = method in ("mlm", "align")
    text = text_corpora(lines.text) if replay or reads_text else []
    trained = {os.path.realpath(path) for corpus in [*pairs, *text] for path in find_source(corpus, ROOT)[1]}
    if both := sorted(trained & {*map(os.path.realpath, kept.paths)}):
        raise ConfigError(f"--keep names {both[0]}, which is trained on: forgetting is measured on other files.")
    checks = check_sources([*pairs, *tests, *dev, *kept.pairs], ROOT)
    clean = [source for source in checks if source.is_clean]
    notes = [str(source) for source in checks if not source.is_clean]
    if clean:
        of = clean[0].title if len(clean) == 1 else f"{len(clean):,} {'other ' * bool(notes)}sources"
        notes.append(f"{of}: {sum(source.pairs for source in clean):,} pairs; nothing doubtful")
    notes += note_kept(kept.sets)
    trained_pairs = {pair for source in checks[: len(pairs)] for pair in source.hashes.tolist()}
    for source in checks[len(checks) - len(kept.pairs) :]:
        if again := len(trained_pairs.intersection(source.hashes.tolist())):
            of = f"--keep: {again:,} pairs of {source.title} are trained on"
            if again > MAX_SHARE * len(source.hashes):
                raise ConfigError(f"{of}: forgetting is measured on others.")
            notes.append(f"{of}.")
    of_text = [measured.language for measured in kept.sets if isinstance(measured, KeptText)]
    if lines.lose_at_most and of_text and (not encoder.has_head or lines.pieces):
        why = "a new vocabulary predicts other pieces" if encoder.has_head else f"{encoder.name} has no masked-LM head"
        if len(of_text) == len(kept.sets):
            raise ConfigError(
                f"--lose-at-most: {why}, so text cannot be bounded. Name pairs or scored pairs in --keep."
            )
        notes.append(f"Text in {', '.join(of_text)} is not bounded: {why}.")
    if lines.text and not text:
        why = "--replay is 0" if trains_head(lines, encoder) else f"{encoder.name} has no masked-LM head to train on it"
        notes.append(f"The text is not used: {why}.")
    recipe = load_recipe(f"continue/{method}").config
    reads_words = bool(recipe.data.dictionaries)
    reads_words = reads_words or any(setting.startswith("data.tokenizer") for setting in lines.set)
    if lines.dictionary and not reads_words:
        notes.append(f"The dictionary is not used: {method} reads none; --method align does.")
    if replay:
        languages = ", ".join(corpus.language for corpus in text)
        notes.append(f"Replay: {replay:.0%} of the rows are text ({languages}), for masked LM.")
    if pairs and text and reads_text:
        notes.append(f"The pairs are scored and not trained on: {method} reads the text in their place.")
        pairs, tests = [], tests or pairs
    reads_negatives = not recipe.data.teacher and any(loss.reads_negatives for loss in recipe.objectives)
    if any(corpus.negatives for corpus in pairs) and not reads_negatives:
        notes.append(f"The hard negatives are not used: {method} reads none; --method contrast does.")
        pairs = [corpus.model_copy(update={"negatives": ()}) for corpus in pairs]
    words = dictionaries(lines.dictionary, lines.languages, [*pairs, *tests]) if reads_words else []
    return Data(pairs, tests, dev, text, words, [measured.thinned() for measured in kept.sets], checks, notes)


def text_corpora(paths: Sequence[str], flag: str = "--text") -> list[Corpus]:
    """A corpus of each language and format; a file's name holds its language, or it is written `de=FILE`.

    Raises:
        ConfigError: a file has no language, or is a table.
    """
    files: dict[tuple[str, str], list[str]] = {}
    for written in paths:
        code, equals, path = written.partition("=")
        if not equals:
            path, codes = written, codes_in_name(written)
            if len(codes) != 1:
                raise ConfigError(
                    f"{flag} {written}: its name has no language code; write LANGUAGE=FILE, such as "
                    f"{flag} de={written}."
                )
            code = codes[0]
        suffix = without_packing(path).suffix
        if suffix in TABLES:
            also = ", or pairs with a score in a column of numbers" * (flag == "--keep")
            raise ConfigError(f"{flag} {written} is a table. Give plain text, a sentence a line{also}.")
        files.setdefault((TEXT_FORMATS.get(suffix, "text"), check_language(code)), []).append(path)
    return [
        Corpus.model_validate({"format": form, "language": code, "paths": paths})
        for (form, code), paths in files.items()
    ]


def is_text(path: str) -> bool:
    """Whether a kept file is text in one language, by its name; else it is read as pairs."""
    suffixes = {".txt", ".text", *TEXT_FORMATS}
    return "=" in path or (len(codes_in_name(path)) == 1 and without_packing(path).suffix in suffixes)


@dataclass(frozen=True)
class Kept:
    """What must not get worse: its sets, whole, the files that they are from, and those that are pairs."""

    sets: Sequence[SentenceSet]
    paths: Sequence[str]
    pairs: Sequence[ParallelCorpus]


def look_at_kept(named: Sequence[str]) -> Kept:
    """Reads the kept files, each by its kind.

    A folder with corpus.jsonl is queries with passages (BEIR); a table with two columns of text in one language and one
    of numbers is scored pairs; a file in one language by its name, or written `de=FILE`, is text; all else is pairs.

    Raises:
        ConfigError: a language or the columns are not clear.
        DataError: a file is missing or damaged.
    """
    scored, folders, texts, others = list[ScoredPairs](), list[QuerySet](), list[str](), list[str]()
    paths = list[str]()
    for written in named:
        code, path = written.partition("=")[::2] if "=" in written else ("", written)
        if (Path(path) / CORPUS).is_file():
            folders.append(read_query_set(Path(path), code))
        elif not (code or is_text(path)):
            others.append(path)
        elif without_packing(path).suffix in {*TABLES, ".jsonl", ".parquet"} and (
            scored_tables := [
                (table, columns)
                for table in find_first_rows([path], "test")
                if (columns := choose_scored_columns(table, bool(code)))
            ]
        ):
            scored += [_scored_pairs(table, columns, code) for table, columns in scored_tables]
            paths += [path for table, _ in scored_tables for path in table.paths]
        else:
            texts.append(written)
    of_pairs = list[FirstRows]()
    for table in find_first_rows(others, "test") if others else ():
        if columns := choose_scored_columns(table):
            scored.append(_scored_pairs(table, columns))
            paths += table.paths
        else:
            of_pairs.append(table)
    pairs, text = choose_pairs(of_pairs) if of_pairs else [], text_corpora(texts, "--keep")
    paths += [path for corpus in [*pairs, *text] for path in find_source(corpus, ROOT)[1]]
    lines = [KeptText.of(corpus.language, [*read_text(corpus)], Path(corpus.paths[0]).name) for corpus in text]
    return Kept([*map(PairSet.of, as_sentences(pairs)), *lines, *scored, *folders], paths, pairs)


def _scored_pairs(table: FirstRows, columns: Sequence[str], code: str = "") -> ScoredPairs:
    return ScoredPairs(*read_scored_rows(table, columns, code), Path(table.title).name)


def dictionaries(paths: Sequence[str], languages: Sequence[str], pairs: Sequence[ParallelCorpus]) -> list[Dictionary]:
    """A dictionary of each file; its languages stand in its name, or are `languages`, or the languages of the pairs.

    Raises:
        ConfigError: the languages are not known.
    """
    of_pairs = {corpus.languages for corpus in pairs}
    sources = []
    for path in paths:
        codes = codes_in_name(path)[:2]
        if len(codes) != 2:
            codes = list(languages) or (list(*of_pairs) if len(of_pairs) == 1 else [])
        if len(codes) != 2:
            raise ConfigError(
                f"--dictionary {path}: its name has no two language codes; call it dictionary.en-de.tsv or "
                "the like, or give --languages en,de."
            )
        form = find_dictionary_form(path)
        say(f"{path}: dictionary of format {form}, {codes[0]} and {codes[1]}")
        sources.append(Dictionary(format=form, languages=(codes[0], codes[1]), paths=(path,)))
    return sources


def note_kept(sets: Sequence[SentenceSet]) -> list[str]:
    """A sentence on each kept set with too few items to judge, or more than are scored.

    Raises:
        ConfigError: a kept file has no sentence.
    """
    notes = []
    for measured in sets:
        of = f"{measured.unit} of {measured.language}"
        if not len(measured):
            raise ConfigError(f"--keep: there are no {of}. Name a file that has some, or leave it out.")
        if len(measured) < FEW_KEPT:
            notes.append(f"--keep: {len(measured):,} {of} can show only a large loss. Give {FEW_KEPT} or more.")
        if len(measured) > MAX_PAIRS:
            notes.append(f"--keep: of {len(measured):,} {of} {MAX_PAIRS:,} are scored, evenly spaced.")
    return notes


def bytes_of_pair(corpora: Sequence[ParallelCorpus]) -> float:
    """Mean size of the two sentences of a pair, of the first MAX_SIZED pairs of each corpus; 0 without a pair."""
    pairs = [pair for corpus in corpora for pair in islice(read_pairs(corpus, ROOT, 1.0), MAX_SIZED)]
    return sum(len(text.encode()) for pair in pairs for text in pair) / max(1, len(pairs))


def as_sentences(corpora: Sequence[ParallelCorpus]) -> list[TranslatedSentences]:
    """The pairs of each two languages for retrieval; their split is named after the files."""
    pairs: dict[tuple[str, str], list[tuple[str, str]]] = {}
    names: dict[tuple[str, str], list[str]] = {}
    for corpus in corpora:
        pairs.setdefault(corpus.languages, []).extend(read_pairs(corpus, ROOT))
        names.setdefault(corpus.languages, []).extend(Path(path).name for path in corpus.paths)
    splits = {code: ", ".join(n) if len(n) <= 3 else f"{n[0]} and {len(n) - 1} more" for code, n in names.items()}
    return [
        TranslatedSentences(code, [a for a, _ in sentences], [b for _, b in sentences], splits[code])
        for code, sentences in pairs.items()
    ]


def read_text(corpus: Corpus) -> Iterator[str]:
    """The paragraphs or sentences of a corpus in any form, in order."""
    reader, paths = find_source(corpus, ROOT)
    for record in read(reader, paths, [corpus.language]):
        if isinstance(record, Document):
            yield from record.paragraphs


def read_tests(run: Path) -> list[TranslatedSentences]:
    """The pairs that a run never trained on, as `prepare` stored them with its shards."""
    data = newest_data(RunFolder(run).events)
    paths = sorted((data_of_run(run, data) / TESTS).glob("*.jsonl")) if data else ()
    return [TranslatedSentences(*read_test_pairs(path), THE_TEST) for path in paths]
