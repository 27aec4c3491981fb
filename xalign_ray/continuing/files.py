"""The files that a user names, as sources of a recipe: pairs, text and dictionaries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from xalign_ray.config.language_codes import check_language, name_of_pair
from xalign_ray.config.schema import Corpus, Dictionary, ParallelCorpus
from xalign_ray.errors import ConfigError
from xalign_ray.sources.language_id import codes_in_name, without_packing
from xalign_ray.sources.open import join_path, read_lines
from xalign_ray.sources.pair_forms import read_pairs
from xalign_ray.sources.stage import TESTS
from xalign_ray.sources.terms import find_dictionary_form
from xalign_ray.tasks.translations import MAX_PAIRS, TranslatedSentences
from xalign_ray.track.events import read_events
from xalign_ray.work.mirror import local_folder
from xalign_ray.work.run_folder import RunFolder
from xalign_ray.work.status_line import say

_TEXT_FORMATS = {".jsonl": "jsonl", ".parquet": "parquet", ".xml": "wikipedia", ".conllu": "conllu"}
MAX_SIZED = 1_000  # pairs of a corpus that say how long a pair is
MAX_COUNTED = 1_000_000  # pairs of a corpus: more do not make a run longer
FEW_KEPT = 100  # pairs or lines: the interval of fewer is often wider than 10 points
_TEXT = {".txt", ".text"}


def text_corpora(paths: Sequence[str], flag: str = "--text") -> list[Corpus]:
    """A corpus of each language, as the files' names say it, or `de=FILE`.

    Raises:
        ConfigError: a name does not say which language the file is in.
    """
    files: dict[tuple[str, str], list[str]] = {}
    for written in paths:
        code, equals, path = written.partition("=")
        if not equals:
            path, codes = written, codes_in_name(written)
            if len(codes) != 1:
                raise ConfigError(
                    f"{flag} {written}: its name does not say its language; write LANGUAGE=FILE, such as "
                    f"{flag} de={written}."
                )
            code = codes[0]
        files.setdefault((_text_format(path), check_language(code)), []).append(path)
    return [
        Corpus.model_validate({"format": form, "language": code, "paths": several})
        for (form, code), several in files.items()
    ]


def dictionaries(paths: Sequence[str], languages: Sequence[str], pairs: Sequence[ParallelCorpus]) -> list[Dictionary]:
    """A dictionary of each file in the form that it is seen to be in; its languages by its name, by `--languages`, or
    those of the pairs.

    Raises:
        ConfigError: none of these says the languages.
    """
    of_pairs = dict.fromkeys(corpus.languages for corpus in pairs)
    found = []
    for path in paths:
        codes = codes_in_name(path)[:2]
        if len(codes) != 2:
            codes = list(languages) or (list(next(iter(of_pairs))) if len(of_pairs) == 1 else [])
        if len(codes) != 2:
            raise ConfigError(
                f"--dictionary {path}: its name does not say its two languages; call it dictionary.en-de.tsv or "
                "the like, or give --languages en,de."
            )
        form = find_dictionary_form(path)
        say(f"{path}: dictionary of format {form}, {codes[0]} and {codes[1]}")
        found.append(Dictionary(format=form, languages=(codes[0], codes[1]), paths=(path,)))
    return found


def note_kept(pairs: Sequence[ParallelCorpus], text: Sequence[Corpus], root: Path) -> list[str]:
    """A sentence on each two languages, or language, of which too little is kept to judge it, or more than is scored.

    Raises:
        ConfigError: a kept file has no sentence.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for corpus in pairs:
        counts[name_of_pair(*corpus.languages), "pairs"] += sum(1 for _ in read_pairs(corpus, root, 1.0))
    for corpus in text:
        counts[corpus.language, "lines"] += len(read_text(corpus, root))
    notes = []
    for (language, unit), count in counts.items():
        if not count:
            raise ConfigError(f"--keep: there are no {unit} of {language}. Name a file that has some, or leave it out.")
        if count < FEW_KEPT:
            notes.append(f"--keep: {count:,} {unit} of {language} can show only a large loss. Give {FEW_KEPT} or more.")
        if count > MAX_PAIRS:
            notes.append(f"--keep: of {count:,} {unit} of {language} {MAX_PAIRS:,} are scored, evenly spaced.")
    return notes


def is_text(path: str) -> bool:
    """Whether a kept file is text in one language, by its name; else it is read as pairs."""
    return "=" in path or (len(codes_in_name(path)) == 1 and without_packing(path).suffix in {*_TEXT, *_TEXT_FORMATS})


def count_pairs(corpora: Sequence[ParallelCorpus], root: Path) -> int:
    """Pairs of all corpora, of each at most MAX_COUNTED."""
    return sum(sum(1 for _ in islice(read_pairs(corpus, root, 1.0), MAX_COUNTED)) for corpus in corpora)


def bytes_of_pair(corpora: Sequence[ParallelCorpus], root: Path) -> float:
    """Mean size of the two sentences of a pair, of the first MAX_SIZED pairs of each corpus."""
    pairs = [pair for corpus in corpora for pair in islice(read_pairs(corpus, root, 1.0), MAX_SIZED)]
    return sum(len(text.encode()) for pair in pairs for text in pair) / max(1, len(pairs))


def as_sentences(corpora: Sequence[ParallelCorpus], root: Path) -> list[TranslatedSentences]:
    """The pairs of each two languages, as retrieval scores them."""
    pairs: dict[tuple[str, str], list[tuple[str, str]]] = {}
    names: dict[tuple[str, str], list[str]] = {}
    for corpus in corpora:
        pairs.setdefault(corpus.languages, []).extend(read_pairs(corpus, root))
        names.setdefault(corpus.languages, []).extend(Path(path).name for path in corpus.paths)
    return [
        TranslatedSentences(
            languages, [first for first, _ in several], [second for _, second in several], ", ".join(names[languages])
        )
        for languages, several in pairs.items()
    ]


def _text_format(path: str) -> str:
    return _TEXT_FORMATS.get(without_packing(path).suffix, "text")


def read_text(corpus: Corpus, root: Path) -> list[str]:
    """The lines of a corpus of plain text, without blank ones."""
    return [
        line.text.strip()
        for path in corpus.paths
        for line in read_lines(join_path(str(root), path))
        if not line.fault and line.text.strip()
    ]


def read_tests(run: Path) -> list[TranslatedSentences]:
    """The pairs that a run never trained on, as `prepare` kept them with its shards."""
    data = next((event["data"] for event in read_events(RunFolder(run).events) if "data" in event), None)
    found = []
    for path in sorted(Path(local_folder(data), TESTS).glob("*.jsonl")) if data else ():
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        first, second = rows[0]
        found.append(
            TranslatedSentences(
                (first, second), [row[first] for row in rows], [row[second] for row in rows], "the test"
            )
        )
    return found
