"""The dictionary pairs that the alignment probe scores: from an export folder, or from MUSE files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from xalign_ray.data.sources.term_tables import muse_words
from xalign_ray.errors import DataError
from xalign_ray.tasks.task_files import name_language, read_lines
from xalign_ray.text.look_up import look_up_form, trim_punctuation

DICTIONARY_PAIRS = "dictionary_pairs.json"
TRAINED, HELD_OUT, UNTRAINED, DROPPED = "trained", "heldout", "untrained", "dropped"
_CODE = r"[a-z]{2,3}(?:-(?:[A-Z][a-z]{3}|[A-Z]{2}|x-[a-z0-9]+))*"
_WHOLE = re.compile(rf"({_CODE})-({_CODE})\.(?:txt|tsv)")
_ANY = re.compile(rf"({_CODE})-({_CODE})(?:\..+)?\.(?:txt|tsv)")


@dataclass(frozen=True, slots=True)
class WordPair:
    """A word and one of its translations; `source_language` is English where either side is.

    Attributes:
        part: what training saw of it: TRAINED, a dictionary has the source word in these two languages; HELD_OUT, it
            had a dictionary of these two languages, and neither word in any; UNTRAINED, it had dictionaries, but none
            of these two languages; DROPPED, it saw one of the words in another pair: asked only among all pairs.
    """

    source_language: str
    source: str
    target_language: str
    target: str
    part: str = HELD_OUT

    @property
    def languages(self) -> tuple[str, str]:
        return self.source_language, self.target_language

    @property
    def words(self) -> tuple[tuple[str, str], tuple[str, str]]:
        return (self.source_language, self.source), (self.target_language, self.target)


def read_exported_pairs(folder: Path) -> list[WordPair]:
    """The pairs of the run that an export folder comes from, trained and held out."""
    path = folder / DICTIONARY_PAIRS
    if not path.is_file():
        raise DataError(f"{path} is missing: this encoder's run had no dictionary; give MUSE files as the data.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        parts = {TRAINED: content["trained"], HELD_OUT: content["held_out"]}
        return [replace(_from_english(*pair), part=part) for part, pairs in parts.items() for pair in pairs]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); export the run again.") from error


def read_muse_pairs(data: Path, trained: Sequence[WordPair]) -> list[WordPair]:
    """The pairs of one MUSE file, or of every `<xx>-<yy>.txt` of a folder (not of its splits such as en-de.0-5000.txt).

    Args:
        data: file or folder. Languages are read off the name: `en-de.5000-6500.txt` is en-de.
        trained: the pairs that the encoder was trained on; if there are none, all are held out.

    Raises:
        DataError: no such files; a line that is not two words (named by file and line).
    """
    known = {pair.languages for pair in trained}
    sources = {(pair.languages, look_up_form(pair.source, pair.source_language)) for pair in trained}
    seen = {word for pair in trained for word in _look_up_words(pair)}

    def part_of(pair: WordPair) -> str:
        if trained and pair.languages not in known:
            return UNTRAINED
        if (pair.languages, look_up_form(pair.source, pair.source_language)) in sources:
            return TRAINED
        # As prepare drops them: what is scored as held out was never pulled anywhere.
        return DROPPED if seen.intersection(_look_up_words(pair)) else HELD_OUT

    return [replace(pair, part=part_of(pair)) for path in _muse_files(data) for pair in _read_muse_file(path)]


def _look_up_words(pair: WordPair) -> list[tuple[str, str]]:
    return [(language, look_up_form(word, language)) for language, word in pair.words]


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
        words = muse_words(line)
        if len(words) != 2:
            raise DataError(f"{path}, line {number}: {len(words)} words, not a word and its translation: {line!r}.")
        yield _from_english(left, trim_punctuation(words[0]), right, trim_punctuation(words[1]))


def _from_english(language: str, word: str, other_language: str, other_word: str) -> WordPair:
    if other_language == "en":
        return WordPair(other_language, other_word, language, word)
    return WordPair(language, word, other_language, other_word)
