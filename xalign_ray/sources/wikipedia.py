"""Reads Wikipedia dumps: MediaWiki export XML of any schema version, streamed page by page."""

from __future__ import annotations

import bz2
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import BinaryIO
from xml.etree.ElementTree import Element

from mwparserfromhell.parser import ParserError

from xalign_ray.sources.markup import COMMENT, Page, read_paragraphs
from xalign_ray.sources.open import CHUNK_BYTES, Chunks, open_bytes, packing, size_of
from xalign_ray.sources.records import (
    PART_BYTES,
    BadRow,
    Document,
    Noted,
    Part,
    Record,
    Skipped,
    one_part_a_file,
    spans_between,
)
from xalign_ray.sources.xml import local_name, stream_elements

# Cuts MediaWiki dumps at pages: plain ones at `<page>`, multistream bzip2 ones where a stream begins with a page.

PAGE = b"<page>"  # in XML this is never text: there it would be written &lt;page>
PACKED_PART_BYTES = 16 << 20  # packed markup is about a quarter of the markup
SEARCH_BYTES = 64 << 20  # a stream of Wikimedia's dumps holds 100 pages, far less than this
TRIES = 8  # streams that begin with no page before the file is taken for one that was cut elsewhere (pbzip2)
_PLAIN = re.compile(re.escape(PAGE))
_STREAM = re.compile(rb"BZh[1-9]1AY&SY")
_LONGEST_MARK = 10


def split_dumps(format_: str, paths: Sequence[str]) -> list[Part]:
    """Ranges of pages of about 64 MB of markup; files whose pages cannot be found by their bytes are one part.

    The index file of a multistream dump is not needed: the next stream after any byte is found by its first ten.
    """
    return [part for path in paths for part in _split(format_, path)]


def _split(format_: str, path: str) -> list[Part]:
    kind = packing(path) if size_of(path) > min(PART_BYTES, PACKED_PART_BYTES) else "small"
    if kind not in (None, "bz2"):
        return one_part_a_file(format_, [path])
    with open_bytes(path) as file:
        if kind is None:
            offsets = _offsets(file, _PLAIN, PART_BYTES, lambda _: True)
        else:
            offsets = _offsets(file, _STREAM, PACKED_PART_BYTES, lambda offset: _begins_with_page(file, offset))
    return [Part(format_, (path,), (span,)) for span in spans_between(offsets)]


def _offsets(file: BinaryIO, mark: re.Pattern[bytes], step: int, is_border: Callable[[int], bool]) -> list[int]:
    """The beginning, and after each `step` bytes the next border."""
    size, offsets = file.seek(0, 2), [0]
    while offsets[-1] + step < size:
        marks = _marks(file, mark, offsets[-1] + step)
        tried = (offset for _, offset in zip(range(TRIES), marks, strict=False))
        border = next((offset for offset in tried if is_border(offset)), None)
        if border is None:
            break
        offsets.append(border)
    return offsets


def _marks(file: BinaryIO, mark: re.Pattern[bytes], start: int) -> Iterator[int]:
    at, rest = start, b""
    while at < start + SEARCH_BYTES:
        file.seek(at)
        chunk = file.read(CHUNK_BYTES)
        if not chunk:
            return
        window, base = rest + chunk, at - len(rest)
        yield from (base + match.start() for match in mark.finditer(window))
        rest, at = window[1 - _LONGEST_MARK :], at + len(chunk)


def _begins_with_page(file: BinaryIO, offset: int) -> bool:
    unpacker, head = bz2.BZ2Decompressor(), b""
    file.seek(offset)
    try:
        while len(head) < 64 and not unpacker.eof and (packed := file.read(CHUNK_BYTES)):
            head += unpacker.decompress(packed, max_length=64)
    except OSError:
        return False
    return head.lstrip().startswith(PAGE)


_ARTICLE, _FILE, _MEDIA, _CATEGORY = "0", "6", "-2", "14"
# "#REDIRECT [[X]]", whatever follows, works in every wiki. Behind a word of its own ("#WEITERLEITUNG [[X]]") only
# templates, links to categories and switches may follow: else it may be a numbered list whose first item has a link.
_REDIRECT = re.compile(
    r"\s*#(?:redirect\s*(?::\s*)?\[\[[^\[\]\n]+\]\]|[^\s\[\]#*:;]+\s*(?::\s*)?\[\[[^\[\]\n]+\]\][^\S\n]*"
    r"(?:(?:\{\{[^{}]*\}\}|\[\[[^\[\]\n:]+:[^\[\]\n]+\]\]|__\w+__)\s*)*(?:\n(?!#)|\Z))",
    re.I,
)


def read_wikipedia(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Articles as plain text. `line` counts the pages from 1, those left out included.

    The pages of a part that begins within a file are counted from there; its `source` is file@byte. Redirects, pages
    of other namespaces, pages that are not wikitext and those of which no text is left (templates only) are skipped.

    Raises:
      BrokenFileError: XML that breaks off or is not well-formed.
    """
    (path,), (span,), (language,) = part.paths, part.spans, languages
    # A part begins with the file's head, and is closed where it ends within the file.
    chunks = Chunks(path, span, _head(path) if span.start else b"", b"" if span.end is None else b"</mediawiki>")
    path = f"{path}@{span.start}" if span.start else path
    namespaces, number = dict[str, str](), 0  # their keys by lower-case name
    for element in stream_elements(chunks, ("page", "siteinfo")):
        if local_name(element) == "siteinfo":
            spaces = (space for space in element.iter() if local_name(space) == "namespace")
            namespaces = {(space.text or "").lower(): space.get("key", "") for space in spaces if space.text}
            continue
        number += 1
        noted: Counter[str] = Counter()
        yield _read_page(element, namespaces, language, path, number, noted)
        yield from (Noted(what, count) for what, count in noted.items() if count)


def _head(path: str) -> bytes:
    """What stands before the first page: the root and the siteinfo."""
    head = b""
    for chunk in Chunks(path):
        head += chunk
        if PAGE in head:
            break
    return head.partition(PAGE)[0]


def _read_page(
    page: Element, namespaces: Mapping[str, str], language: str, path: str, number: int, noted: Counter[str]
) -> Record | Skipped:
    revisions = [element for element in page if local_name(element) == "revision"]
    newest = sorted(revisions, key=_written_at)[-1:]  # an export may begin with it
    fields = {
        local_name(element): element.text or "" for element in chain(page, *(revision.iter() for revision in newest))
    }
    markup = fields.get("text", "").lstrip("\ufeff")
    title = fields.get("title", "")
    prefix, colon, _ = title.partition(":")
    if fields.get("ns", namespaces.get(prefix.strip().lower(), _ARTICLE) if colon else _ARTICLE) != _ARTICLE:
        return Skipped("page of another namespace")
    if "redirect" in fields or _REDIRECT.match(COMMENT.sub("", markup)):  # old schemas have no such element
        return Skipped("redirect")
    if fields.get("model", "wikitext") != "wikitext":
        return Skipped("page that is not wikitext")
    try:
        hidden = frozenset(name for name, key in namespaces.items() if key in (_FILE, _CATEGORY))
        media = frozenset(name for name, key in namespaces.items() if key == _MEDIA)
        paragraphs = read_paragraphs(markup, Page(hidden, media, language, title, noted))
    except (ParserError, RecursionError):
        return BadRow(path, number, "markup cannot be parsed")
    return Document(language, paragraphs, path, number) if paragraphs else Skipped("empty after markup")


def _written_at(revision: Element) -> str:
    """When a revision was written, in ISO 8601; empty if unknown."""
    return next((element.text or "" for element in revision if local_name(element) == "timestamp"), "")
