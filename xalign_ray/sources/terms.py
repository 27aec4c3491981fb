"""Dictionaries of MUSE, PanLex and Wiktionary (kaikki.org) as tables; finds which form a dictionary has."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from xalign_ray.errors import DataError
from xalign_ray.sources.archives import files_of
from xalign_ray.sources.language_id import fits
from xalign_ray.sources.open import Chunks, number_lines
from xalign_ray.sources.readings import ONE_TERM, make_entries
from xalign_ray.sources.records import BadRow, Noted, Part, Record, Skipped
from xalign_ray.sources.tables import (
    BLANK,
    COMMENT,
    SourceRow,
    SourceTable,
    TableFile,
    open_csv,
    said_direction,
    split_comments,
)
from xalign_ray.sources.translation_files import written_code
from xalign_ray.vocabulary.words import BLANKS

NO_TRANSLATION = "entry without a translation into the other language"
OTHER_LANGUAGES = "entry in other languages"
MORE = "dictionary line has more than two columns"
NOT_A_WORD = "line is no JSON object with a word"


def open_muse(file: TableFile) -> SourceTable:
    """Lines of a word and its translation, in the order of the file (MUSE: by frequency of the source word).

    Words are parted by any white space, as MUSE's own code does; where a line has a tab, by that alone, so that a term
    may be of several words.
    """

    def read(languages: Sequence[str]) -> Iterator[SourceRow]:
        comments, lines = split_comments(file.chunks)
        yield from (SourceRow(line.number, skipped=COMMENT if line.text.strip() else BLANK) for line in comments)
        step = -1 if said_direction(comments) == [*languages][::-1] else 1
        for line in lines:
            words = muse_words(line.text)
            fault = line.fault or ("" if len(words) in (0, 2) else ONE_TERM if len(words) == 1 else MORE)
            yield SourceRow(line.number, words[::step], fault, "" if fault or words else BLANK)

    return SourceTable(file.path, (), read, languages=list)


def muse_words(line: str) -> list[str]:
    """The columns of a line of a MUSE dictionary: what white space parts, or tabs alone where it has one."""
    words = line.split("\t") if "\t" in line.strip() else line.split()
    if len(words) > 2 and len(by_blanks := line.strip(BLANKS).split(" ")) == 2:
        words = by_blanks  # a no-break space within a term
    return [bare for word in words if (bare := " ".join(word.split()))]


def open_kaikki(file: TableFile) -> SourceTable:
    """Words of wiktextract's JSON lines in either language, with their translations into the other.

    Translations stand under the word, or under its senses. Parts of speech, senses and romanisations are not read.
    """

    def read(languages: Sequence[str]) -> Iterator[SourceRow]:
        for line in number_lines(file.chunks, file.path, json_lines=True):
            if not line.fault and not line.text.strip():
                yield SourceRow(line.number, skipped=BLANK)
                continue
            value, fault = ({}, line.fault) if line.fault else _parsed(line.text)
            code = _code(value.get("lang_code"))
            turned = not fits(code, languages[0])
            other = languages[0 if turned else 1]
            translations = [translation for translation in _translations(value) if fits(_code_of(translation), other)]
            words = [
                translation["word"]
                for translation in translations
                if isinstance(translation.get("word"), str) and translation["word"]
            ]
            cells = [[value.get("word")], words][:: -1 if turned else 1]
            skipped = "" if words else NO_TRANSLATION
            if turned and not fits(code, languages[1]):
                skipped = OTHER_LANGUAGES
            notes = sum(key in value for key in ("pos", "tags", "categories", "etymology_text"))
            yield SourceRow(line.number, cells, fault, "" if fault else skipped, others=notes)

    return SourceTable(file.path, (), read, languages=list)


def _parsed(text: str) -> tuple[dict[str, Any], str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}, "line is not JSON"
    is_word = isinstance(value, dict) and isinstance(value.get("word"), str)
    return (value, "") if is_word else ({}, NOT_A_WORD)


def is_kaikki(line: str) -> bool:
    """Whether a line is an object of wiktextract."""
    return not _parsed(line)[1]


def _translations(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    senses = value.get("senses")
    for holder in (value, *(senses if isinstance(senses, list) else ())):
        listed = holder.get("translations") if isinstance(holder, dict) else None
        yield from (item for item in (listed if isinstance(listed, list) else ()) if isinstance(item, dict))


def _code_of(translation: dict[str, Any]) -> str:
    return _code(translation.get("lang_code") or translation.get("code"))


@lru_cache(maxsize=8192)
def _code(written: Any) -> str:
    return written_code(written) if isinstance(written, str) else ""


_TABLES = {  # the columns that are read of each of PanLex's
    "langvar": ("id", "lang_code"),
    "expr": ("id", "langvar", "txt"),
    "denotation": ("meaning", "expr"),
}


def read_panlex(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Entries of PanLex's snapshot: the expressions of all varieties of two languages that share a meaning of a source.

    `line` is the number of the meaning. Holds the expressions of the two languages in memory, and the meanings that
    have any.

    Raises:
        DataError: a table or a column is missing.
    """
    files = [file for path in part.paths for file in files_of(path)]
    tables = {name: _find_table(files, name, part.paths[0]) for name in _TABLES}
    bad: list[BadRow] = []
    varieties: dict[str, int] = {}
    for number, code in _rows(tables["langvar"], "langvar", bad):
        language = written_code(code)
        for index, asked in enumerate(languages):
            if fits(language, asked):
                varieties[number] = index
    texts: dict[str, tuple[int, str]] = {}
    for number, variety, text in _rows(tables["expr"], "expr", bad):
        if variety in varieties:
            texts[number] = (varieties[variety], text)
    meanings: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for meaning, expression in _rows(tables["denotation"], "denotation", bad):
        if expression in texts:
            index, text = texts[expression]
            meanings[meaning][index].append(text)
    yield from bad
    source = tables["denotation"].path
    for meaning, both in meanings.items():
        if all(both):
            yield from make_entries(languages, *both, source, int(meaning) if meaning.isdecimal() else 0)
        else:
            yield Skipped(NO_TRANSLATION)


def _find_table(files: Sequence[Chunks], name: str, path: str) -> Chunks:
    fitting = [file for file in files if file.path.replace(":", "/").rsplit("/", 1)[-1].split(".")[0] == name]
    if len(fitting) != 1:
        raise DataError(
            f"{path} has {len(fitting) or 'no'} table called {name}.csv. Format panlex reads langvar.csv, expr.csv and "
            "denotation.csv of PanLex's snapshot, or the zip that holds them."
        )
    return fitting[0]


def _rows(file: Chunks, name: str, bad: list[BadRow]) -> Iterator[Sequence[str]]:
    table = open_csv(TableFile(file))
    if missing := [column for column in _TABLES[name] if column not in table.names]:
        raise DataError(
            f"{file.path} has no column '{missing[0]}'; its columns are {', '.join(table.names) or 'none'}."
        )
    for row in table.read(_TABLES[name]):
        if row.fault:
            bad.append(BadRow(file.path, row.number, row.fault))
        elif not row.skipped:
            yield row.cells
