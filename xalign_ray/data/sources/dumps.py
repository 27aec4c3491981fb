"""Cuts MediaWiki dumps at pages: plain ones at `<page>`, multistream bzip2 ones where a stream begins with a page."""

from __future__ import annotations

import bz2
import re
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

from xalign_ray.data.sources.files import open_bytes
from xalign_ray.data.sources.open import CHUNK_BYTES, packing
from xalign_ray.data.sources.parts import PART_BYTES, Part, one_part_a_file, spans_between

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
    kind = packing(path)
    if kind not in (None, "bzip2"):
        return one_part_a_file(format_, [path])
    with open_bytes(path) as file:
        offsets = _plain_offsets(file) if kind is None else _packed_offsets(file)
    return [Part(format_, (path,), (span,)) for span in spans_between(offsets)]


def _plain_offsets(file: BinaryIO) -> list[int]:
    return _offsets(file, _PLAIN, PART_BYTES, lambda _: True)


def _packed_offsets(file: BinaryIO) -> list[int]:
    return _offsets(file, _STREAM, PACKED_PART_BYTES, lambda offset: _begins_with_page(file, offset))


def _offsets(file: BinaryIO, mark: re.Pattern[bytes], step: int, is_border: Callable[[int], bool]) -> list[int]:
    """The beginning, and after each `step` bytes the next border."""
    size, offsets = file.seek(0, 2), [0]
    while offsets[-1] + step < size:
        found = _marks(file, mark, offsets[-1] + step)
        tried = (offset for _, offset in zip(range(TRIES), found, strict=False))
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
