"""Streams of elements out of XML of any size: each is freed when the next one is taken."""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Iterator
from typing import cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser
from xml.parsers import expat

from xalign_ray.errors import DataError
from xalign_ray.sources.open import REFETCH, XML_BROKEN, XML_ENDS, XML_LONG, BrokenFileError, Chunks

_OF_EXPAT = {"", "utf-8", "utf-16", "us-ascii"}
# Files that are declared as the first often hold characters of the second, which has all of the first (as browsers do).
_OF_WINDOWS = {"iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874"}
_LARGER = {
    **_OF_WINDOWS,
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "cp950",
}
_AS_CONTROL = "xalign.as_control"
_DECLARED = re.compile(rb"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z0-9._:-]+)["']""")
MAX_ELEMENT_BYTES = 64 << 20  # between two tags: a text that never ends must not fill the memory
_CUT_OFF = frozenset(
    expat.errors.codes[name]
    for name in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_PARTIAL_CHAR,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
    )
)


def stream_elements(chunks: Chunks, names: Collection[str], starts: Collection[str] = ()) -> Iterator[Element]:
    """The elements with these names, whatever their namespace and depth, none of which may lie in another.

    Args:
      starts: names of elements above them that are yielded where they begin, with their attributes alone.

    Nothing outside the bytes is looked at: an external DTD is not resolved. Encodings that expat lacks (gb2312, big5,
    shift_jis, euc-kr, ...) are decoded here, as the XML declaration names them.

    Raises:
      BrokenFileError: it breaks off, is not well-formed, or is not in its encoding.
      DataError: the declaration names an encoding that Python does not have.
    """
    parser = XMLPullParser(("start", "end"))
    above: list[Element] = []
    decoder: codecs.IncrementalDecoder | None = None
    since_tag = 0  # bytes
    for number, chunk in enumerate(chunks):
        if number == 0:
            decoder = _decoder(chunks.path, chunk)
        try:
            parser.feed(decoder.decode(chunk) if decoder else chunk)
            since_tag += len(chunk)
            for event, element in cast("Iterator[tuple[str, Element]]", parser.read_events()):
                since_tag = 0
                if event == "start":
                    above.append(element)
                    if local_name(element) in starts:
                        yield element
                    continue
                above.pop()
                if local_name(element) in names:
                    yield element
                    for parent in above:
                        parent.clear()
        except UnicodeDecodeError as error:
            raise chunks.broken(f"its bytes are not {error.encoding}") from None
        except ParseError as error:
            raise _broken(chunks, error) from None
        if since_tag > MAX_ELEMENT_BYTES:
            raise chunks.broken(XML_LONG)
    try:
        parser.close()
        for _ in parser.read_events():  # raises what close found
            pass
    except ParseError as error:
        raise _broken(chunks, error) from None


def _decoder(path: str, head: bytes) -> codecs.IncrementalDecoder | None:
    """What decodes a file in an encoding that expat does not know; None where it does."""
    declared = _DECLARED.match(head.removeprefix(codecs.BOM_UTF8))
    name = declared[1].decode("ascii") if declared else ""
    seen = _seen_encoding(head)
    if seen == "utf-16" or (seen and name.lower() not in ("", "utf-8")):
        return codecs.getincrementaldecoder(seen)()
    if name.lower() in _OF_EXPAT:
        return None
    try:
        return find_decoder(name)
    except (LookupError, UnicodeError):
        raise DataError(
            f"{path} declares the encoding '{name}', which is not known here. Convert it to UTF-8 (iconv -f {name} -t "
            "UTF-8) and change the encoding in its first line."
        ) from None


def find_decoder(name: str) -> codecs.IncrementalDecoder:
    """What decodes text that declares this encoding, with the characters that browsers find in it, too.

    Raises:
      LookupError, UnicodeError: Python does not know it, or it is not one of text.
    """
    codec = codecs.lookup(name.lower().removeprefix("x-")).name
    b"text".decode(codec, "replace")  # raises for codecs that are not of text
    larger = _LARGER.get(codec, codec)
    return codecs.getincrementaldecoder(larger)(_AS_CONTROL if larger in _OF_WINDOWS.values() else "strict")


def _as_control(error: UnicodeError) -> tuple[str, int]:
    """The character of a byte to which a Windows code page gives none: the control character of its number."""
    assert isinstance(error, UnicodeDecodeError)
    return chr(error.object[error.start]), error.start + 1


codecs.register_error(_AS_CONTROL, _as_control)


def _seen_encoding(head: bytes) -> str:
    """The encoding by a file's first bytes, against its declaration, which a conversion may have kept.

    A declaration of UTF-16 that can be read as ASCII is none.
    """
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    declared = _DECLARED.match(head)
    is_marked = head.startswith(codecs.BOM_UTF8)
    return "utf-8-sig" if is_marked or (declared and declared[1].lower().startswith(b"utf-16")) else ""


def local_name(element: Element) -> str:
    """An element's name without its namespace."""
    return element.tag.rpartition("}")[2]


def _broken(chunks: Chunks, error: ParseError) -> BrokenFileError:
    reason = XML_ENDS if error.code in _CUT_OFF else XML_BROKEN
    if chunks.span.start:  # expat counts lines from there
        return chunks.broken(reason)
    return BrokenFileError(f"cannot be read on: {reason}. {REFETCH}", chunks.path, error.position[0])
