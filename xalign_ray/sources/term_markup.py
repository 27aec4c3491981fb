"""Reads dictionaries in XML: TBX (glossaries), TEI (FreeDict) and Apertium's dix; entries are streamed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from xalign_ray.sources.column_languages import fits
from xalign_ray.sources.open import BrokenFileError, Chunks
from xalign_ray.sources.parts import Part
from xalign_ray.sources.records import Noted, Record, Skipped
from xalign_ray.sources.term_files import (
    NO_TRANSLATION,
    NOTES,
    OTHER_LANGUAGES,
    entries,
    files_of,
    is_turned,
)
from xalign_ray.sources.xml import local_name, stream_elements
from xalign_ray.sources.xml_pairs import written_code

DEPRECATED = "deprecated terms, left out"
ONE_WAY = "entries of one direction, taken for both"
RULE = "rule without words"
_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_NOTE_NAMES = frozenset({"termNote", "descrip", "note", "admin", "partOfSpeech", "gramGrp", "usg", "def", "etym", "s"})
_DEPRECATED = ("deprecated", "superseded")


def read_tbx(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Entries of TBX, version 2 (`termEntry`) and 3 (`conceptEntry`): all terms of a concept in both languages.

    `line` counts concepts. `en` takes en-US. Concepts that lack one of the languages are skipped and counted.

    Raises:
      BrokenFileError: XML that breaks off or is not well-formed; after the concepts before it.
    """
    for file, number, concept in _elements(part, ("termEntry", "conceptEntry")):
        terms: dict[str, list[str]] = {}
        deprecated = 0
        for section in concept.iter():
            if local_name(section) in ("langSet", "langSec"):
                code = written_code(section.get(_LANG) or section.get("lang") or "")
                for group in section:
                    found = ["".join(one.itertext()) for one in group.iter() if local_name(one) == "term"]
                    if found and _is_deprecated(group):
                        deprecated += len(found)
                    else:
                        terms.setdefault(code, []).extend(found)
        if deprecated:
            yield Noted(DEPRECATED, deprecated)
        if notes := _count_notes(concept):
            yield Noted(NOTES, notes)
        first, second = ([term for code in terms if fits(code, asked) for term in terms[code]] for asked in languages)
        if first and second:
            yield from entries(languages, first, second, file.path, number)
        else:
            yield Skipped(NO_TRANSLATION if first or second else OTHER_LANGUAGES)


def _is_deprecated(group: Element) -> bool:
    statuses = (one.text or "" for one in group.iter() if _is_status(one))
    return any(status.strip().lower().startswith(_DEPRECATED) for status in statuses)


def _is_status(element: Element) -> bool:
    return local_name(element) == "administrativeStatus" or element.get("type") == "administrativeStatus"


def read_tei(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Entries of TEI as FreeDict has them: each spelling of the headword with each translation of its senses.

    `line` counts entries. The headwords are in the first language, or in the second where the file's name says so
    (`deu-eng.tei` for en and de). Translations that are marked to be in a third language are left out.

    Raises:
      BrokenFileError: XML that breaks off or is not well-formed; after the entries before it.
    """
    for file, number, entry in _elements(part, ("entry",)):
        turned = is_turned(file.path, languages)
        into = languages[0] if turned else languages[1]
        forms = [one for form in entry if local_name(form) == "form" for one in form.iter() if _is_headword(one)]
        heads = [_text(one) for form in forms for one in form if local_name(one) == "orth"]
        found = list(_translations(entry, into))
        if notes := _count_notes(entry):
            yield Noted(NOTES, notes)
        if found:
            first, second = (found, heads) if turned else (heads, found)
            yield from entries(languages, first, second, file.path, number)
        else:
            yield Skipped(NO_TRANSLATION)


def _is_headword(form: Element) -> bool:
    return local_name(form) == "form" and not form.get("type", "").startswith("infl")


def _translations(entry: Element, language: str) -> Iterator[str]:
    """What stands in `<cit type="trans"><quote>`, but not of examples and of entries within the entry."""
    waiting = [(entry, "")]
    while waiting:
        element, code = waiting.pop()
        code = written_code(element.get(_LANG) or "") or code
        name = local_name(element)
        if name == "quote" and (not code or fits(code, language)):
            yield _text(element)
        if name in ("re", "form") or (name == "cit" and not element.get("type", "trans").startswith("trans")):
            continue
        inside = element if name == "cit" else [one for one in element if local_name(one) != "quote"]
        waiting.extend((one, code if name == "cit" else "") for one in reversed(list(inside)))


def read_dix(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Entries of a bilingual dictionary of Apertium: `<l>` and `<r>`, or `<i>` where both are the same.

    `line` counts `<e>` elements of sections. `<l>` is in the first language, or in the second where the file's name
    says so (`apertium-eng-deu.eng-deu.dix` for de and en). Paradigms and patterns hold no words.

    Raises:
      BrokenFileError: XML that breaks off or is not well-formed; after the entries before it.
    """
    number, is_section = 0, True
    for file, of_file, entry in _elements(part, ("e",), ("pardefs", "section")):
        if local_name(entry) != "e":
            is_section = local_name(entry) == "section"
        if local_name(entry) != "e" or not is_section:
            continue
        number = 1 if of_file == 1 else number + 1
        turned = is_turned(file.path, languages)
        pair = entry.find("p")
        both = [entry.find("i")] * 2 if pair is None else [pair.find("l"), pair.find("r")]
        if any(one is None for one in both) or entry.find("re") is not None:
            yield Skipped(RULE)
            continue
        if entry.get("r"):
            yield Noted(ONE_WAY, 1)
        if notes := _count_notes(entry):
            yield Noted(NOTES, notes)
        left, right = ([_lemma(one)] if one is not None else [] for one in both)
        first, second = (right, left) if turned else (left, right)
        yield from entries(languages, first, second, file.path, number)


def _lemma(one: Element) -> str:
    """The words of one side of a dix entry: `<b/>` is a blank, `<s n="n"/>` a symbol of its grammar."""
    text = one.text or ""
    for child in one:
        name = local_name(child)
        text += " " if name == "b" else _lemma(child) if name == "g" else ""
        text += child.tail or ""
    return text


def _elements(part: Part, names: Sequence[str], starts: Sequence[str] = ()) -> Iterator[tuple[Chunks, int, Element]]:
    """The elements of all files of a part with their numbers from 1, and the beginnings of others, numbered 0."""
    for file in files_of(part.paths[0]):
        number = 0
        try:
            for element in stream_elements(file, names, starts):
                if local_name(element) in names:
                    number += 1
                    yield file, number, element
                else:
                    yield file, 0, element
        except BrokenFileError as broken:
            raise broken.after("entry", number) from None


def _text(element: Element) -> str:
    return "".join(element.itertext())


def _count_notes(element: Element) -> int:
    return sum(local_name(one) in _NOTE_NAMES for one in element.iter())
