"""Reads Wikipedia dumps: MediaWiki export XML of any schema version, streamed page by page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser
from xml.parsers import expat

from mwparserfromhell.parser import ParserError

from xalign_ray.data.sources.markup import read_paragraphs
from xalign_ray.data.sources.open import ArchiveFaultError, read_chunks
from xalign_ray.data.sources.parts import Part
from xalign_ray.data.sources.records import EMPTY_DOCUMENT, BadRow, Document, Record, Skipped

_ARTICLE, _FILE, _MEDIA, _CATEGORY = "0", "6", "-2", "14"
_REDIRECT = re.compile(r"\s*#[^\s\[\]#*:;]+\s*:?\s*\[\[")  # "#REDIRECT [[", "#WEITERLEITUNG [[", in any language
_CUT_OFF = frozenset(
    expat.errors.codes[name]
    for name in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_PARTIAL_CHAR,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
    )
)


@dataclass
class _Site:
    """What a dump says about its wiki: namespace keys by lower-case name."""

    namespaces: dict[str, str] = field(default_factory=dict)

    def hidden(self) -> frozenset[str]:
        """The local names of the namespaces whose links leave no words in the text."""
        return frozenset(name for name, key in self.namespaces.items() if key in (_FILE, _MEDIA, _CATEGORY))

    def key_of(self, title: str) -> str:
        """The namespace that a title stands in, for dumps that do not say."""
        return self.namespaces.get(title.partition(":")[0].strip().lower(), _ARTICLE) if ":" in title else _ARTICLE


def read_wikipedia(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped]:
    """Articles as plain text. `line` counts the pages of the file from 1, those left out included.

    Redirects, pages of other namespaces and pages that are not wikitext are skipped. XML that breaks off or is not
    well-formed ends the file with one bad row; what came before it is read.
    """
    (path,), (language,) = part.paths, languages
    site, number = _Site(), 0
    try:
        for element in _elements(path):
            if _local(element) == "siteinfo":
                site.namespaces = _namespaces(element)
                continue
            number += 1
            yield _read_page(element, site, language, path, number)
    except ArchiveFaultError as fault:
        yield BadRow(path, number + 1, str(fault))
    except ParseError as error:
        yield BadRow(path, number + 1, "XML ends too early" if error.code in _CUT_OFF else "XML is not well-formed")


def _elements(path: str) -> Iterator[Element]:
    """The siteinfo and page elements of a dump, each freed when the next one is asked for."""
    parser = XMLPullParser(("start", "end"))
    root: Element | None = None
    for chunk in read_chunks(path):
        parser.feed(chunk)
        for event, element in cast("Iterator[tuple[str, Element]]", parser.read_events()):
            if root is None:
                root = element
            elif event == "end" and _local(element) in ("page", "siteinfo"):
                yield element
                root.clear()
    parser.close()
    for _ in parser.read_events():  # raises what close found
        pass


def _read_page(page: Element, site: _Site, language: str, path: str, number: int) -> Record | Skipped:
    fields = {_local(element): element.text or "" for element in page.iter()}  # of several revisions, the last
    markup = fields.get("text", "")
    if fields.get("ns", site.key_of(fields.get("title", ""))) != _ARTICLE:
        return Skipped("page of another namespace")
    if "redirect" in fields or ("ns" not in fields and _REDIRECT.match(markup)):  # old schemas tell neither
        return Skipped("redirect")
    if fields.get("model", "wikitext") != "wikitext":
        return Skipped("page that is not wikitext")
    try:
        paragraphs = read_paragraphs(markup, site.hidden())
    except (ParserError, RecursionError):
        return BadRow(path, number, "markup cannot be parsed")
    return Document(language, paragraphs, path, number) if paragraphs else BadRow(path, number, EMPTY_DOCUMENT)


def _namespaces(siteinfo: Element) -> dict[str, str]:
    found = (element for element in siteinfo.iter() if _local(element) == "namespace")
    return {(element.text or "").lower(): element.get("key", "") for element in found if element.text}


def _local(element: Element) -> str:
    return element.tag.rpartition("}")[2]
