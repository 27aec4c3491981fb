"""The dictionary pairs that the alignment probe scores: from an export folder, or from MUSE files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from xalign_ray.errors import DataError
from xalign_ray.tasks.task_files import name_language, read_lines
from xalign_ray.text.tokenizer import look_up_form

DICTIONARY_PAIRS = "dictionary_pairs.json"
ENGLISH = "en"
_CODE = r"[a-z]{2,3}(?:-(?:[A-Z][a-z]{3}|[A-Z]{2}|x-[a-z0-9]+))*"
_WHOLE = re.compile(rf"({_CODE})-({_CODE})\.(?:txt|tsv)")
_ANY = re.compile(rf"({_CODE})-({_CODE})(?:\..+)?\.(?:txt|tsv)")


@dataclass(frozen=True, slots=True)
class WordPair:
    """A word and one of its translations; `source_language` is English where either side is."""

    source_language: str
    source: str
    target_language: str
    target: str

    @property
    def name(self) -> str:
        """The pair of languages, such as "en-de"."""
        return f"{self.source_language}-{self.target_language}"


@dataclass(frozen=True, slots=True)
class WordPairs:
    """The pairs of a dictionary by what training saw of them, and what to call them together.

    Attributes:
        trained: a dictionary of training has the source word in these two languages.
        held_out: training had a dictionary of these two languages, and neither word in any.
        split: of the scores.
        untrained: training had no dictionary of these two languages, but of others.
        dropped: not asked, because training saw one of the words in another pair; they stay candidates.
    """

    trained: tuple[WordPair, ...]
    held_out: tuple[WordPair, ...]
    split: str
    untrained: tuple[WordPair, ...] = ()
    dropped: tuple[WordPair, ...] = ()

    @property
    def all(self) -> tuple[WordPair, ...]:
        """Every pair, once."""
        return (*self.trained, *self.held_out, *self.untrained, *self.dropped)


def read_exported_pairs(folder: Path) -> WordPairs:
    """The pairs of the run that an export folder comes from.

    Raises:
        DataError: the folder has none, or the file is damaged.
    """
    path = folder / DICTIONARY_PAIRS
    if not path.is_file():
        raise DataError(f"{path} is missing: this encoder's run had no dictionary; give MUSE files as the data.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        parts = {part: tuple(_from_english(*pair) for pair in content[part]) for part in ("trained", "held_out")}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); export the run again.") from error
    return WordPairs(parts["trained"], parts["held_out"], "dictionary")


def read_muse_pairs(data: Path, trained: Sequence[WordPair]) -> WordPairs:
    """The pairs of one MUSE file, or of every `<xx>-<yy>.txt` of a folder (not of its splits such as en-de.0-5000.txt).

    Args:
        data: file or folder. Languages are read off the name: `en-de.5000-6500.txt` is en-de.
        trained: the pairs that the encoder was trained on; if there are none, all are held out.

    Raises:
        DataError: no such files; a line that is not two words (named by file and line).
    """
    pairs = tuple(pair for path in _muse_files(data) for pair in _read_muse_file(path))
    languages = {pair.name for pair in trained}
    sources = {(pair.name, look_up_form(pair.source)) for pair in trained}
    seen = {key for pair in trained for key in _keys(pair)}
    found: dict[str, list[WordPair]] = {"trained": [], "held_out": [], "untrained": [], "dropped": []}
    for pair in pairs:
        if trained and pair.name not in languages:
            label = "untrained"
        elif (pair.name, look_up_form(pair.source)) in sources:
            label = "trained"
        else:  # as prepare drops them: what is scored as held out was never pulled anywhere
            label = "dropped" if seen.intersection(_keys(pair)) else "held_out"
        found[label].append(pair)
    return WordPairs(split=data.stem, **{label: tuple(some) for label, some in found.items()})


def _keys(pair: WordPair) -> tuple[tuple[str, str], tuple[str, str]]:
    return (
        (pair.source_language, look_up_form(pair.source)),
        (pair.target_language, look_up_form(pair.target)),
    )


def shared_words(pairs: Iterable[WordPair]) -> frozenset[tuple[str, str, str]]:
    """(source language, target language, word) of source words that are, but for case, their own translation."""
    return frozenset(
        (pair.source_language, pair.target_language, pair.source)
        for pair in pairs
        if pair.source.casefold() == pair.target.casefold()
    )


def _muse_files(data: Path) -> list[Path]:
    if data.is_dir():
        files = [path for path in sorted(data.iterdir()) if _WHOLE.fullmatch(path.name)]
    else:
        files = [data] if _ANY.fullmatch(data.name) else []
    if not files:
        raise DataError(f"{data} holds no dictionary; MUSE files are called en-de.txt, or en-de.5000-6500.txt.")
    return files


def _read_muse_file(path: Path) -> Iterator[WordPair]:
    name = _ANY.fullmatch(path.name)
    assert name is not None
    left, right = name_language(name[1], path), name_language(name[2], path)
    for number, line in enumerate(read_lines(path), 1):
        words = line.split()
        if len(words) != 2:
            raise DataError(f"{path}, line {number}: {len(words)} words, not a word and its translation: {line!r}.")
        yield _from_english(left, words[0], right, words[1])


def _from_english(language: str, word: str, other_language: str, other_word: str) -> WordPair:
    if other_language == ENGLISH:
        return WordPair(other_language, other_word, language, word)
    return WordPair(language, word, other_language, other_word)
