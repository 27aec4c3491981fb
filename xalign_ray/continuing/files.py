"""The files that a user names for `xalign continue`, as sources of a recipe, and their sentences."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from xalign_ray.config.language_codes import check_language, name_of_pair
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import Corpus, Dictionary, ParallelCorpus
from xalign_ray.continuing.five_lines import FiveLines
from xalign_ray.continuing.methods import trains_head
from xalign_ray.errors import ConfigError
from xalign_ray.models.open import Opened
from xalign_ray.sources.first_rows import find_dictionary_form
from xalign_ray.sources.formats import find_source, read
from xalign_ray.sources.language_id import codes_in_name, without_packing
from xalign_ray.sources.pair_checks import PairChecks, check_pairs
from xalign_ray.sources.pair_forms import look_at_pairs, read_pairs
from xalign_ray.sources.records import Document
from xalign_ray.sources.stage import TESTS
from xalign_ray.tasks.retrieval import MAX_PAIRS, TranslatedSentences
from xalign_ray.track.events import newest_data
from xalign_ray.work.mirror import data_of_run
from xalign_ray.work.run_folder import RunFolder
from xalign_ray.work.status_line import say

ROOT = Path()  # paths are relative to the current folder
THE_TEST = "the test"  # the split of a run's own test pairs
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
        kept, kept_text: pairs and text that must not get worse.
        checks: of all pairs.
        notes: on files that are used or not, a sentence each.
    """

    pairs: Sequence[ParallelCorpus]
    tests: Sequence[ParallelCorpus]
    dev: Sequence[ParallelCorpus]
    text: Sequence[Corpus]
    dictionaries: Sequence[Dictionary]
    kept: Sequence[ParallelCorpus]
    kept_text: Sequence[Corpus]
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
    kept_paths = [path for path in lines.keep if not is_text(path)]
    kept = look_at_pairs(kept_paths, split="test") if kept_paths else []
    kept_text = text_corpora([path for path in lines.keep if is_text(path)], "--keep")
    reads_text = method in ("mlm", "align")
    text = text_corpora(lines.text) if replay or reads_text else []
    trained, not_trained = (
        {os.path.realpath(path) for corpus in corpora for path in find_source(corpus, ROOT)[1]}
        for corpora in ([*pairs, *text], [*kept, *kept_text])
    )
    if both := sorted(trained & not_trained):
        raise ConfigError(f"--keep names {both[0]}, which is trained on: forgetting is measured on other files.")
    checks = [check_pairs(corpus, ROOT) for corpus in [*pairs, *tests, *dev]]
    kept_checks = [check_pairs(corpus, ROOT) for corpus in kept]
    notes = [*map(str, checks), *map(str, kept_checks), *note_kept(kept_checks, kept_text)]
    if lines.text and not text:
        why = "--replay is 0" if trains_head(lines, encoder) else f"{encoder.name} has no masked-LM head to train on it"
        notes.append(f"The text is not used: {why}.")
    reads_words = bool(load_recipe(f"continue/{method}").config.data.dictionaries)
    reads_words = reads_words or any(setting.startswith("data.tokenizer") for setting in lines.set)
    if lines.dictionary and not reads_words:
        notes.append(f"The dictionary is not used: {method} reads none; --method align does.")
    if replay:
        languages = ", ".join(corpus.language for corpus in text)
        notes.append(f"Replay: {replay:.0%} of the rows are text ({languages}), for masked LM.")
    if pairs and text and reads_text:
        notes.append(f"The pairs are scored and not trained on: {method} reads the text in their place.")
        pairs, tests = [], tests or pairs
    words = dictionaries(lines.dictionary, lines.languages, [*pairs, *tests]) if reads_words else []
    return Data(pairs, tests, dev, text, words, kept, kept_text, [*checks, *kept_checks], notes)


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
            raise ConfigError(f"{flag} {written} is a table. Give plain text, a sentence a line.")
        files.setdefault((TEXT_FORMATS.get(suffix, "text"), check_language(code)), []).append(path)
    return [
        Corpus.model_validate({"format": form, "language": code, "paths": paths})
        for (form, code), paths in files.items()
    ]


def is_text(path: str) -> bool:
    """Whether a kept file is text in one language, by its name; else it is read as pairs."""
    suffixes = {".txt", ".text", *TEXT_FORMATS}
    return "=" in path or (len(codes_in_name(path)) == 1 and without_packing(path).suffix in suffixes)


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


def note_kept(pairs: Sequence[PairChecks], text: Sequence[Corpus]) -> list[str]:
    """A sentence on each language, or pair of languages, with too few kept sentences to judge, or more than are scored.

    Raises:
        ConfigError: a kept file has no sentence.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for checks in pairs:
        counts[name_of_pair(*checks.corpus.languages), "pairs"] += checks.pairs
    for corpus in text:
        counts[corpus.language, "lines"] += sum(1 for _ in read_text(corpus))
    notes = []
    for (language, unit), count in counts.items():
        if not count:
            raise ConfigError(f"--keep: there are no {unit} of {language}. Name a file that has some, or leave it out.")
        if count < FEW_KEPT:
            notes.append(f"--keep: {count:,} {unit} of {language} can show only a large loss. Give {FEW_KEPT} or more.")
        if count > MAX_PAIRS:
            notes.append(f"--keep: of {count:,} {unit} of {language} {MAX_PAIRS:,} are scored, evenly spaced.")
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
    tests = []
    for path in sorted((data_of_run(run, data) / TESTS).glob("*.jsonl")) if data else ():
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        first, second = rows[0]
        tests.append(
            TranslatedSentences((first, second), [row[first] for row in rows], [row[second] for row in rows], THE_TEST)
        )
    return tests
