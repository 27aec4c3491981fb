"""Reads XLIFF, the exchange format of translation programs: units with a source and a target, streamed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from xalign_ray.data.sources.broken import BrokenFileError
from xalign_ray.data.sources.column_languages import fits
from xalign_ray.data.sources.moses import check_texts
from xalign_ray.data.sources.open import Chunks
from xalign_ray.data.sources.parts import Part
from xalign_ray.data.sources.records import BadRow, Pair, Record, Skipped
from xalign_ray.data.sources.tmx import OTHER_LANGUAGES, segment_text, written_code
from xalign_ray.data.sources.xml import local_name, stream_elements
from xalign_ray.errors import DataError

UNTRANSLATED, UNFINISHED, NOT_FOR_TRANSLATION = "not translated", "translation is not finished", "not to be translated"
_UNITS = ("trans-unit", "segment")  # of XLIFF of version 1, and of 2


class Unit(NamedTuple):
    """A unit of an XLIFF file: source and target, their languages (empty where the file names none), and why it is
    left out, if it is.
    """

    languages: tuple[str, str]
    texts: tuple[str, str]
    skipped: str


def read_xliff(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped]:
    """Pairs of the two languages, whichever is the source; `line` counts the units of the file from 1.

    Units without a target, with one that is not finished by its state, and those of files in other languages are
    skipped and counted. `en` takes en-US as well. A language that the file does not name is the one that is left.

    Raises:
      BrokenFileError: XML that breaks off or is not well-formed; after the units before it.
      DataError: no unit is in both languages; says which languages there are.
    """
    first, second = languages
    (path,) = part.paths
    number, fits, seen = 0, False, set[str]()
    try:
        for number, unit in enumerate(read_units(path), start=1):
            seen.update(unit.languages)
            places = match_languages(unit.languages, (first, second))
            if places is None:
                yield Skipped(OTHER_LANGUAGES)
                continue
            fits = True
            if unit.skipped:
                yield Skipped(unit.skipped)
                continue
            pair = (unit.texts[places[0]], unit.texts[places[1]])
            fault = check_texts(pair)
            yield BadRow(path, number, fault) if fault else Pair((first, second), pair, path, number)
    except BrokenFileError as broken:
        raise broken.after("unit", number) from None
    if number and not fits:
        named = ", ".join(sorted(filter(None, seen))) or "none"
        raise DataError(f"{path} has no unit in {first} and {second}; its languages are {named}.")


def match_languages(codes: tuple[str, str], languages: tuple[str, str]) -> tuple[int, int] | None:
    """Which of source and target (0, 1) is in each of two languages; a code that is not known fits any."""

    def may_be(code: str, language: str) -> bool:
        return not code or fits(code, language)

    if may_be(codes[0], languages[0]) and may_be(codes[1], languages[1]):
        return 0, 1
    return (1, 0) if may_be(codes[1], languages[0]) and may_be(codes[0], languages[1]) else None


def read_units(path: str) -> Iterator[Unit]:
    """The units of a file, each with the languages of the `<file>` or `<xliff>` that it lies in."""
    codes = ["", ""]
    translated = True
    for element in stream_elements(Chunks(path), _UNITS, ("xliff", "file", "unit")):
        name = local_name(element)
        if name in ("xliff", "file"):
            written = [element.get("srcLang", ""), element.get("trgLang", "")] if name == "xliff" else []
            written = written or [element.get("source-language", ""), element.get("target-language", "")]
            codes = [written_code(code) or known for code, known in zip(written, codes, strict=True)]
        elif name == "unit":
            translated = element.get("translate") != "no"
        else:
            yield _unit(element, codes, translated)


def _unit(element: Element, codes: Sequence[str], translated: bool) -> Unit:
    children = {local_name(child): child for child in element}
    target = children.get("target")
    texts = segment_text(children.get("source")), segment_text(target)
    state = (target.get("state") if target is not None else None) or element.get("state") or ""
    skipped = UNFINISHED if state in ("new", "initial", "rejected") or state.startswith("needs-") else ""
    skipped = skipped if texts[1] else UNTRANSLATED
    if not translated or element.get("translate") == "no":
        skipped = NOT_FOR_TRANSLATION
    return Unit((codes[0], codes[1]), texts, skipped)
