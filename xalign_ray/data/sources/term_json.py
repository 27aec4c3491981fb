"""Reads dictionaries of Wiktionary as kaikki.org has them: JSON lines of wiktextract, a word and its translations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from xalign_ray.data.sources.column_languages import fits
from xalign_ray.data.sources.open import number_lines
from xalign_ray.data.sources.parts import Part
from xalign_ray.data.sources.records import BadRow, Noted, Record, Skipped
from xalign_ray.data.sources.term_files import NO_TRANSLATION, NOTES, OTHER_LANGUAGES, entries, files_of
from xalign_ray.data.sources.tmx import written_code

NOT_A_WORD = "line is no JSON object with a word"


def read_kaikki(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Entries of words in either language that have translations into the other; `line` is that of the word.

    Translations stand under the word, or under its senses. Parts of speech, senses and romanisations are counted and
    not read.
    """
    for file in files_of(part.paths[0]):
        for line in number_lines(file, file.path, json_lines=True):
            if not line.fault and not line.text.strip():
                yield Skipped("blank line")
                continue
            value, fault = ({}, line.fault) if line.fault else _parsed(line.text)
            if fault:
                yield BadRow(file.path, line.number, fault)
                continue
            code = _code(value.get("lang_code"))
            turned = not fits(code, languages[0])
            if turned and not fits(code, languages[1]):
                yield Skipped(OTHER_LANGUAGES)
                continue
            found = [_word_of(one) for one in _translations(value) if fits(_code_of(one), languages[not turned])]
            words = [word for word in found if word]
            if notes := sum(key in value for key in ("pos", "tags", "categories", "etymology_text")):
                yield Noted(NOTES, notes)
            if words:
                first, second = (words, [value["word"]]) if turned else ([value["word"]], words)
                yield from entries(languages, first, second, file.path, line.number)
            else:
                yield Skipped(NO_TRANSLATION)


def _parsed(text: str) -> tuple[dict[str, Any], str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}, "line is not JSON"
    is_word = isinstance(value, dict) and isinstance(value.get("word"), str)
    return (value, "") if is_word else ({}, NOT_A_WORD)


def _translations(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    senses = value.get("senses")
    for holder in (value, *(senses if isinstance(senses, list) else ())):
        listed = holder.get("translations") if isinstance(holder, dict) else None
        yield from (one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, dict))


def _code_of(translation: dict[str, Any]) -> str:
    return _code(translation.get("lang_code") or translation.get("code"))


def _word_of(translation: dict[str, Any]) -> str:
    word = translation.get("word")
    return word if isinstance(word, str) else ""


@lru_cache(maxsize=8192)
def _code(written: Any) -> str:
    return written_code(written) if isinstance(written, str) else ""
