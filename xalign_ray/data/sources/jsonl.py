"""Reads JSON lines: each line is an object whose `text` is a document, its lines the paragraphs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from xalign_ray.data.sources.open import Line, read_lines
from xalign_ray.data.sources.parts import Part
from xalign_ray.data.sources.records import EMPTY_DOCUMENT, BadRow, Document, Record, Skipped


def read_jsonl(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped]:
    """Documents of a JSON-lines file; other keys than `text` are not looked at."""
    (path,), (language,) = part.paths, languages
    for line in read_lines(path, part.spans[0], part.first_line):
        if not line.fault and not line.text.strip():
            yield Skipped("blank line")
            continue
        paragraphs, fault = _paragraphs(line)
        if fault:
            yield BadRow(path, line.number, fault)
        else:
            yield Document(language, paragraphs, path, line.number)


def _paragraphs(line: Line) -> tuple[tuple[str, ...], str]:
    if line.fault:
        return (), line.fault
    try:
        value = json.loads(line.text)
    except (ValueError, RecursionError):
        return (), "line is not JSON"
    text = value.get("text") if isinstance(value, dict) else None
    if not isinstance(text, str):
        return (), "line is no JSON object with a string 'text'"
    if not _is_unicode(text):
        return (), "text holds half a surrogate pair"
    paragraphs = tuple(stripped for raw in text.split("\n") if (stripped := raw.strip()))
    return paragraphs, "" if paragraphs else EMPTY_DOCUMENT


def _is_unicode(text: str) -> bool:
    """JSON can spell lone surrogates (backslash u d800), which no tokenizer and no file accepts."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
