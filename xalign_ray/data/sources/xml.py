"""Streams elements out of XML of any size: each is freed when the next one is asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser
from xml.parsers import expat

from xalign_ray.data.sources.broken import XML_BROKEN, XML_ENDS
from xalign_ray.data.sources.open import Chunks

_CUT_OFF = frozenset(
    expat.errors.codes[name]
    for name in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_PARTIAL_CHAR,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
    )
)


def stream_elements(chunks: Chunks, names: Collection[str]) -> Iterator[Element]:
    """The elements with these names, whatever their namespace and depth, none of which may lie in another.

    Nothing outside the bytes is looked at: an external DTD is not resolved.

    Raises:
      BrokenFileError: after everything before the fault has been yielded.
    """
    parser = XMLPullParser(("start", "end"))
    above: list[Element] = []
    line, column = 1, 0  # where a piece begins
    for chunk in chunks:
        try:
            parser.feed(chunk)
            for event, element in cast("Iterator[tuple[str, Element]]", parser.read_events()):
                if event == "start":
                    above.append(element)
                    continue
                above.pop()
                if local_name(element) in names:
                    yield element
                    for parent in above:
                        parent.clear()
        except ParseError as error:
            raise chunks.broken(_reason(error), _bytes_before(error, chunk, line, column)) from None
        last = chunk.rfind(b"\n") + 1
        line, column = line + chunk.count(b"\n"), _characters(chunk[last:]) + (0 if last else column)
    try:
        parser.close()
        for _ in parser.read_events():  # raises what close found
            pass
    except ParseError as error:
        raise chunks.broken(_reason(error)) from None


def _bytes_before(error: ParseError, chunk: bytes, line: int, column: int) -> int:
    """How many bytes of a piece stand before the fault, whose place expat gives as line (from 1) and character."""
    at = 0
    for _ in range(error.position[0] - line):
        at = chunk.find(b"\n", at) + 1
        column = 0
    characters = chunk[at : at + 4 * error.position[1]].decode("utf-8", "replace")[: error.position[1] - column]
    return at + len(characters.encode())


def _characters(raw: bytes) -> int:
    return len(raw.decode("utf-8", "ignore"))


def local_name(element: Element) -> str:
    """An element's name without its namespace."""
    return element.tag.rpartition("}")[2]


def _reason(error: ParseError) -> str:
    return XML_ENDS if error.code in _CUT_OFF else XML_BROKEN
