"""Streams elements out of XML of any size: each is freed when the next one is asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser
from xml.parsers import expat

_CUT_OFF = frozenset(
    expat.errors.codes[name]
    for name in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_PARTIAL_CHAR,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
    )
)


def stream_elements(chunks: Iterable[bytes], names: Collection[str]) -> Iterator[Element]:
    """The elements with these names, whatever their namespace and depth, none of which may lie in another.

    Nothing outside the bytes is looked at: an external DTD is not resolved.

    Raises:
      ParseError: after everything before the fault has been yielded; explain_parse says what it means.
    """
    parser = XMLPullParser(("start", "end"))
    above: list[Element] = []
    for chunk in chunks:
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
    parser.close()
    for _ in parser.read_events():  # raises what close found
        pass


def local_name(element: Element) -> str:
    """An element's name without its namespace."""
    return element.tag.rpartition("}")[2]


def explain_parse(error: ParseError) -> str:
    """The reason for which a file's rest could not be read."""
    return "XML ends too early" if error.code in _CUT_OFF else "XML is not well-formed"
