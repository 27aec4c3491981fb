"""The dictionary pairs that the alignment probe scores: those of a run, or of a dictionary in any form."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from xalign_ray.config.sources import Dictionary
from xalign_ray.data.sources.column_languages import codes_in_name
from xalign_ray.data.sources.records import BadRow, Entry, list_reasons
from xalign_ray.data.sources.term_tables import muse_words
from xalign_ray.errors import DataError
from xalign_ray.tasks.task_files import read_lines
from xalign_ray.text.look_up import look_up_form, trim_punctuation
from xalign_ray.work.run_folder import RunFolder
from xalign_ray.work.status_line import say

DICTIONARY_PAIRS = "dictionary_pairs.json"
TRAINED, HELD_OUT, UNTRAINED, DROPPED = "trained", "heldout", "untrained", "dropped"


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
        raise DataError(f"{path} is missing: this encoder's run had no dictionary. Give one with --data.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        parts = {TRAINED: content["trained"], HELD_OUT: content["held_out"]}
        return [replace(_from_english(*pair), part=part) for part, pairs in parts.items() for pair in pairs]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); export the run again.") from error


def read_word_pairs(data: Path, trained: Sequence[WordPair]) -> list[WordPair]:
    """The pairs of a dictionary, each with what training saw of it.

    Args:
        data: the folder of a run or of its export, whose held-out and trained pairs are taken as that run had them; a
            folder of MUSE files `<xx>-<yy>.txt` (not of their splits such as en-de.0-5000.txt); or a dictionary in any
            form whose name says its languages, such as `en-de.5000-6500.txt` and `terms.en-de.tbx`.
        trained: the pairs that the encoder was trained on. A pair that another run held out is not held out of this
            encoder if it saw one of the words; where an encoder has no trained pairs, all are held out.

    Raises:
        DataError: no such files; a line of a MUSE file that is not two words (named by file and line).
    """
    known = {pair.languages for pair in trained}
    sources = {(pair.languages, look_up_form(pair.source, pair.source_language)) for pair in trained}
    seen = {word for pair in trained for word in _look_up_words(pair)}

    def part_of(pair: WordPair) -> str:
        if (pair.languages, look_up_form(pair.source, pair.source_language)) in sources:
            return TRAINED
        # As prepare drops them: what is scored as held out was never pulled anywhere.
        return DROPPED if seen.intersection(_look_up_words(pair)) else HELD_OUT

    if export := find_export(data):
        pairs = read_exported_pairs(export)
        return [replace(pair, part=part_of(pair)) if pair.part == HELD_OUT else pair for pair in pairs]
    pairs = [pair for path in _dictionary_files(data) for pair in _read_dictionary(path)]
    is_untrained = {pair.languages: bool(trained) and pair.languages not in known for pair in pairs}
    return [replace(pair, part=UNTRAINED if is_untrained[pair.languages] else part_of(pair)) for pair in pairs]


def find_export(data: Path) -> Path | None:
    """The folder of a run's own pairs, if `data` is a run, its export, or the file of the pairs."""
    folders = (data, RunFolder(data).export, *([data.parent] if data.name == DICTIONARY_PAIRS else []))
    return next((folder for folder in folders if (folder / DICTIONARY_PAIRS).is_file()), None)


def _look_up_words(pair: WordPair) -> list[tuple[str, str]]:
    return [(language, look_up_form(word, language)) for language, word in pair.words]


def _dictionary_files(data: Path) -> list[Path]:
    if data.is_dir():
        if files := [path for path in sorted(data.iterdir()) if _is_muse(path)]:
            return files
        raise DataError(
            f"{data} holds no dictionary. Name a file, a folder of MUSE files such as en-de.txt, or a run that was "
            "trained with a dictionary."
        )
    if not data.is_file() or len(codes_in_name(str(data))) != 2:
        raise DataError(f"{data}: its name does not say its two languages. Call it en-de.txt, terms.en-de.tbx or so.")
    return [data]


def _is_muse(path: Path) -> bool:
    """`en-de.txt`, and not the parts of it that MUSE has beside it."""
    return path.suffix in (".txt", ".tsv") and "." not in path.stem and len(codes_in_name(path.name)) == 2


def _read_dictionary(path: Path) -> Iterator[WordPair]:
    from xalign_ray.data.sources.formats import NOTED, read
    from xalign_ray.data.sources.term_forms import find_dictionary_form

    first, second = codes_in_name(str(path))
    form = find_dictionary_form(str(path))
    if form == "muse":
        for number, line in enumerate(read_lines(path), 1):
            words = muse_words(line)
            if len(words) != 2:
                raise DataError(f"{path}, line {number}: {len(words)} words, not a word and its translation: {line!r}.")
            yield _from_english(first, trim_punctuation(words[0]), second, trim_punctuation(words[1]))
        return
    left_out: Counter[str] = Counter()
    entries = 0
    source = Dictionary(format=form, languages=(first, second), paths=(str(path),))
    for record in read(source.reader, source.paths, source.languages, left_out):
        if isinstance(record, Entry):
            entries += 1
            yield _from_english(first, record.words[0], second, record.words[1])
        elif isinstance(record, BadRow):
            left_out[record.reason] += 1
    counts = Counter({reason: count for reason, count in left_out.items() if not reason.startswith(NOTED)})
    say(f"{path}: {entries:,} entries" + (f"; set aside: {list_reasons(counts)}" if counts else ""))


def _from_english(language: str, word: str, other_language: str, other_word: str) -> WordPair:
    if other_language == "en":
        return WordPair(other_language, other_word, language, word)
    return WordPair(language, word, other_language, other_word)
