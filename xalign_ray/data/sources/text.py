"""Reads plain text: a line is a sentence or paragraph, a blank line ends a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from xalign_ray.data.sources.broken import BrokenFileError, held_back
from xalign_ray.data.sources.open import read_lines
from xalign_ray.data.sources.parts import Part, split_at_blank_lines
from xalign_ray.data.sources.records import BadRow, Document, Record

MAX_DOCUMENT_LINES = 10_000


def read_text(part: Part, languages: Sequence[str]) -> Iterator[Record]:
    """Documents of a text file. If no blank line stands between its first 10,000 lines, each line is a document.

    A document of more than 10,000 lines is split after each 10,000, so that memory stays bounded. Of one that a broken
    file cuts in two, the lines before it are yielded.
    """
    (path,), (language,) = part.paths, languages
    borders = has_borders(path) if part.borders is None else part.borders
    limit = MAX_DOCUMENT_LINES if borders else 1
    pending: list[str] = []
    first = 0  # number of its first line
    broken: list[BrokenFileError] = []
    for line in held_back(read_lines(path, part.spans[0], part.first_line), broken):
        if line.fault:
            yield BadRow(path, line.number, line.fault)
            continue
        if text := line.text.strip():
            first = first if pending else line.number
            pending.append(text)
        if pending and (not text or len(pending) == limit):
            yield Document(language, tuple(pending), path, first)
            pending = []
    if pending:
        yield Document(language, tuple(pending), path, first)
    if broken:
        raise broken[0]


def has_borders(path: str) -> bool:
    """Whether a blank line stands between two lines of text among the first 10,000 lines of a file."""
    lines = held_back(read_lines(path), [])  # the error is raised where they are read as text
    kinds = [bool(line.fault or line.text.strip()) for line in islice(lines, MAX_DOCUMENT_LINES)]
    words = "".join("t" if is_text else "_" for is_text in kinds)
    return "_" in words.strip("_")


def split_text(format_: str, paths: Sequence[str]) -> list[Part]:
    """Parts that never split a document."""
    return split_at_blank_lines(format_, paths, has_borders)
