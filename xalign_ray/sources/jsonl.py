"""Reads JSON, lines or an array of objects: each holds a document under `text`, or a pair by its languages."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from xalign_ray.config.language_codes import NAMES
from xalign_ray.sources.column_languages import is_called
from xalign_ray.sources.moses import check_texts
from xalign_ray.sources.open import CHUNK_BYTES, MAX_LINE_BYTES, NOT_UTF8, Chunks, Line, read_lines
from xalign_ray.sources.parts import Part
from xalign_ray.sources.records import EMPTY_DOCUMENT, BadRow, Document, Pair, Record, Skipped

NOT_JSON = "it is not JSON"
TEXT = "text"  # the key or column of a document, where the source names no other
_BETWEEN = re.compile(r"[\s,]*")
_NAMES = {code: name.lower() for name, code in NAMES.items()}


def read_jsonl(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped]:
    """Documents of a JSON-lines file, under the key that the source names, or under `text`; others are not read."""
    return _read(part, [part.columns or (TEXT,)], _document(part, languages))


def read_json_array(part: Part, languages: Sequence[str]) -> Iterator[Record]:
    """As read_jsonl, of a JSON file that is an array of objects; `line` counts the objects.

    Raises:
      BrokenFileError: the rest is no JSON; after the documents before it.
    """
    return _read_array(part, [part.columns or (TEXT,)], _document(part, languages))


def _document(part: Part, languages: Sequence[str]) -> Callable[[Sequence[str], int], Document | str]:
    (path,), (language,) = part.paths, languages
    return lambda texts, number: document_of(texts[0], language, path, number)


def document_of(text: str, language: str, path: str, number: int) -> Document | str:
    """A document whose paragraphs are the lines of a text; the reason why it is none, if it has no line."""
    paragraphs = tuple(stripped for raw in text.split("\n") if (stripped := raw.strip()))
    return Document(language, paragraphs, path, number) if paragraphs else EMPTY_DOCUMENT


def read_jsonl_pairs(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped]:
    """Pairs of a JSON-lines file; keys are the source's columns, or the languages: their codes (`zh`) or English names
    (`chinese`), in the object itself or in its `translation`."""
    return _read(part, _keys_of(part, languages), _pair_of(part, languages))


def read_json_pairs(part: Part, languages: Sequence[str]) -> Iterator[Record]:
    """Pairs of a JSON file that is an array of objects, with keys as read_jsonl_pairs; `line` counts the objects.

    Raises:
      BrokenFileError: the rest is no JSON; after the pairs before it.
    """
    return _read_array(part, _keys_of(part, languages), _pair_of(part, languages))


def _read_array(
    part: Part, keys: Sequence[Sequence[str]], make: Callable[[Sequence[str], int], Record | str]
) -> Iterator[Record]:
    (path,) = part.paths
    for number, value in enumerate(read_array(path), start=1):
        texts, fault = _strings(value, keys)
        made = fault or make(texts, number)
        yield BadRow(path, number, made) if isinstance(made, str) else made


def read_array(path: str) -> Iterator[Any]:
    """The values of a JSON array of any length, one after the other; of one that breaks off, those before.

    Raises:
      BrokenFileError: the rest is no JSON, or a value is longer than 1 MB.
    """
    decoder, chunks = json.JSONDecoder(), Chunks(path)
    marked = next(iter(chunks), b"").startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text_of = codecs.getincrementaldecoder("utf-16" if marked else "utf-8-sig")()
    text, at, opened = "", 0, False
    for chunk in chain(chunks, [b""]):
        try:
            text, at = text[at:] + text_of.decode(chunk, final=not chunk), 0
        except UnicodeDecodeError as error:
            raise chunks.broken(NOT_UTF8) from error
        if not opened and (text := text.lstrip()):
            text, opened = text.removeprefix("["), True
        while (at := _between(text, at)) < len(text) and text[at] != "]":
            try:
                value, end = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                break  # the rest of the value is in the next chunk, or it is no JSON
            yield value
            at = end
        if len(text) - at > MAX_LINE_BYTES + CHUNK_BYTES:
            break
    if text[at:].strip() != "]":
        raise chunks.broken(NOT_JSON)


def _between(text: str, at: int) -> int:
    """The next place from `at` on that is neither blank nor comma."""
    found = _BETWEEN.match(text, at)
    return found.end() if found else at


def _pair_of(part: Part, languages: Sequence[str]) -> Callable[[Sequence[str], int], Pair | str]:
    (path,), (first, second) = part.paths, languages

    def pair(texts: Sequence[str], number: int) -> Pair | str:
        one, other = map(one_line, texts)
        return check_texts([one, other]) or Pair((first, second), (one, other), path, number)

    return pair


def _keys_of(part: Part, languages: Sequence[str]) -> list[tuple[str, ...]]:
    return [(column,) for column in part.columns] if part.columns else list(map(_keys, languages))


def one_line(text: str) -> str:
    """The text with every stretch of white space as one blank."""
    return " ".join(text.split())


def _keys(code: str) -> tuple[str, ...]:
    names = (code, _NAMES[code]) if code in _NAMES else (code,)
    return (*names, *(f"translation.{name}" for name in names))


def _read(
    part: Part, keys: Sequence[Sequence[str]], make: Callable[[Sequence[str], int], Record | str]
) -> Iterator[Record | Skipped]:
    """What `make` makes of the strings of each line and its number; a string that it gives is a fault."""
    (path,) = part.paths
    for line in read_lines(path, part.spans[0], part.first_line, json_lines=True):
        if not line.fault and not line.text.strip():
            yield Skipped("blank line")
            continue
        texts, fault = _texts(line, keys)
        made = fault or make(texts, line.number)
        yield BadRow(path, line.number, made) if isinstance(made, str) else made


def _texts(line: Line, keys: Sequence[Sequence[str]]) -> tuple[list[str], str]:
    """The strings of a line's object, each under the first of its keys that is there, or why they cannot be had."""
    if line.fault:
        return [], line.fault
    try:
        value = json.loads(line.text)
    except (ValueError, RecursionError):
        return [], "line is not JSON"
    return _strings(value, keys)


def _strings(value: Any, keys: Sequence[Sequence[str]]) -> tuple[list[str], str]:
    texts = [_first(value, names) for names in keys]
    for text, names in zip(texts, keys, strict=True):
        named = " or ".join(f"'{name}'" for name in names if "." not in name or len(names) == 1)
        if not isinstance(text, str):
            return [], f"line is no JSON object with a string {named}"
        if not _is_unicode(text):
            return [], f"{named} holds half a surrogate pair"
    return texts, ""


def _first(value: Any, names: Sequence[str]) -> Any:
    found = (find_key(value, name) for name in names)
    text = next((text for text in found if text is not None), None)
    if text is not None or len(names) == 1 or not isinstance(value, dict):
        return text
    above = [value, value.get("translation")]  # a code that is written in another way: `amh` for am
    alike = (inner.get(key) for inner in above if isinstance(inner, dict) for key in inner if is_called(key, names[0]))
    return next((text for text in alike if isinstance(text, str)), None)


def find_key(value: Any, name: str) -> Any:
    """The value under a key, or under a dotted path of keys of objects within objects; None if it is not there."""
    if isinstance(value, dict) and name not in value and "." in name:
        above, _, rest = name.partition(".")
        return find_key(value.get(above), rest)
    return value.get(name) if isinstance(value, dict) else None


def _is_unicode(text: str) -> bool:
    """JSON can spell lone surrogates (backslash u d800), which no tokenizer and no file accepts."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
