"""Reads Wikipedia dumps: MediaWiki export XML of any schema version, streamed page by page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from mwparserfromhell.parser import ParserError

from xalign_ray.data.sources.broken import BrokenFileError
from xalign_ray.data.sources.dumps import PAGE
from xalign_ray.data.sources.markup import COMMENT, Page, read_paragraphs
from xalign_ray.data.sources.open import Chunks, Span
from xalign_ray.data.sources.parts import Part
from xalign_ray.data.sources.records import BadRow, Document, Noted, Record, Skipped
from xalign_ray.data.sources.xml import local_name, stream_elements

_ARTICLE, _FILE, _MEDIA, _CATEGORY = "0", "6", "-2", "14"
# "#REDIRECT [[", "#WEITERLEITUNG [[", in any language; but no numbered list whose first item begins with a link.
_REDIRECT = re.compile(r"\s*#[^\s\[\]#*:;]+\s*:?\s*\[\[[^\[\]\n]+\]\][^\S\n]*(?:\{\{[^{}]*\}\}\s*)*(?:\n(?!#)|\Z)")


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


def read_wikipedia(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Articles as plain text. `line` counts the pages from 1, those left out included.

    The pages of a part that begins within a file are counted from there; its `source` is file@byte. Redirects, pages
    of other namespaces, pages that are not wikitext and those of which no text is left (templates only) are skipped.

    Raises:
      BrokenFileError: XML that breaks off or is not well-formed; after the pages before it.
    """
    (path,), (span,), (language,) = part.paths, part.spans, languages
    chunks = _chunks(path, span)
    path = f"{path}@{span.start}" if span.start else path
    site, number = _Site(), 0
    try:
        for element in stream_elements(chunks, ("page", "siteinfo")):
            if local_name(element) == "siteinfo":
                site.namespaces = _namespaces(element)
                continue
            number += 1
            noted: Counter[str] = Counter()
            yield _read_page(element, site, language, path, number, noted)
            yield from (Noted(what, count) for what, count in noted.items() if count)
    except BrokenFileError as broken:
        raise broken.after("page", number) from None


def _chunks(path: str, span: Span) -> Chunks:
    """The bytes of a part, made a document of its own: with the file's head before it, and closed after it."""
    return Chunks(path, span, _head(path) if span.start else b"", b"" if span.end is None else b"</mediawiki>")


def _head(path: str) -> bytes:
    """What stands before the first page: the root and the siteinfo."""
    head = b""
    for chunk in Chunks(path):
        head += chunk
        if PAGE in head:
            break
    return head.partition(PAGE)[0]


def _read_page(
    page: Element, site: _Site, language: str, path: str, number: int, noted: Counter[str]
) -> Record | Skipped:
    fields = {local_name(element): element.text or "" for element in page.iter()}  # of several revisions, the last
    markup = fields.get("text", "").lstrip("\ufeff")
    if fields.get("ns", site.key_of(fields.get("title", ""))) != _ARTICLE:
        return Skipped("page of another namespace")
    if "redirect" in fields or _REDIRECT.match(
        COMMENT.sub("", markup)
    ):  # old schemas and some exports have no such element
        return Skipped("redirect")
    if fields.get("model", "wikitext") != "wikitext":
        return Skipped("page that is not wikitext")
    try:
        paragraphs = read_paragraphs(markup, Page(site.hidden(), language, fields.get("title", ""), noted))
    except (ParserError, RecursionError):
        return BadRow(path, number, "markup cannot be parsed")
    return Document(language, paragraphs, path, number) if paragraphs else Skipped("empty after markup")


def _namespaces(siteinfo: Element) -> dict[str, str]:
    found = (element for element in siteinfo.iter() if local_name(element) == "namespace")
    return {(element.text or "").lower(): element.get("key", "") for element in found if element.text}
