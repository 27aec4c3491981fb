"""Dictionaries of MUSE and Wiktionary (kaikki.org) as tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from xalign_ray.sources.language_id import fits
from xalign_ray.sources.open import number_lines
from xalign_ray.sources.readings import ONE_TERM
from xalign_ray.sources.tables import (
    BLANK,
    COMMENT,
    SourceRow,
    SourceTable,
    TableFile,
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
