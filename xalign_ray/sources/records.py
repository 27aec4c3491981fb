"""Parts of a source, read in parallel, and their records, each with its file and line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Literal, TypeVar

import numpy as np

from xalign_ray.sources.open import (
    CHUNK_BYTES,
    MAX_LINE_BYTES,
    OVER_LONG,
    WHOLE,
    Span,
    is_one_piece,
    open_bytes,
    size_of,
)

Item = TypeVar("Item")
Kind = Literal["documents", "pairs", "entries"]  # readings of a source's rows
EMPTY_DOCUMENT = "document is empty"
BOTH_EMPTY = "both sides are empty"
ONE_EMPTY = "one side is empty"
SHOWN = 64  # characters of a name in a message
MARKUP = "text is HTML or wiki markup"
MARKUP_CHARACTERS = 2000  # of a text, in which markup shows
_HTML = re.compile(r"(?i)\s*<(!doctype html|(html|body|div|section|article|table|p|h[1-6]|[ou]l)\b[^<>]*>)")
_LINK = r"\[\[[^\[\]\n]+\]\]"
_WIKI = re.compile(rf"'{{3}}[^'\n]+'{{3}}[^\n]*{_LINK}|{_LINK}[^\n]*(</ref>|\{{\{{[^{{}}\n]+\}}\}})")


@dataclass(slots=True)  # not frozen: one for each row, and a frozen one takes five times as long to make
class Document:
    """Monolingual text: its paragraphs or sentences in order. `line` is the first line or the record number, from 1.

    `duplicate` says of each paragraph that passes the filters whether it stood in its pool before, `near_duplicate`
    whether a document that is nearly like this one did; prepare finds both.
    """

    language: str
    paragraphs: tuple[str, ...]
    source: str
    line: int
    duplicate: Sequence[bool] = ()
    near_duplicate: bool = False


@dataclass(slots=True)  # not frozen, as Document
class Pair:
    """Two sentences that translate each other; `alignment` is Pharaoh: `i-j` from 0, over words between blanks.

    `negatives` are texts in the second language that do not translate or answer the first. `duplicate` has one value
    for the pair, or none; otherwise as in Document.
    """

    languages: tuple[str, str]
    texts: tuple[str, str]
    source: str
    line: int
    alignment: str | None = None
    duplicate: Sequence[bool] = ()
    near_duplicate: bool = False
    negatives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a bilingual dictionary: a word and one of its translations."""

    languages: tuple[str, str]
    words: tuple[str, str]
    source: str
    line: int


@dataclass(frozen=True, slots=True)
class BadRow:
    """Input that was set aside: it is counted by `reason` and kept in the file of bad rows, never silently lost."""

    source: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """Input that a reader leaves out on purpose (a redirect, a blank line): counted by `reason`, not a fault."""

    reason: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Noted:
    """Something in the input that is worth a count, of a kind that takes no row away."""

    what: str
    count: int


@dataclass(frozen=True, slots=True)
class Lines:
    """The number of lines of a part, which a reader yields last: lines of later parts of the file follow them."""

    count: int


def list_reasons(counts: Mapping[str, int]) -> str:
    """The reasons and how many rows each has, the most frequent first."""
    return ", ".join(
        f"{reason}: {count:,}" for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item))
    )


def list_some(names: Sequence[object], count: int = 8) -> str:
    """The first of many names, and how many more there are."""
    more = f" and {len(names) - count:,} more" if len(names) > count else ""
    return ", ".join(str(name)[:SHOWN] for name in names[:count]) + more


Record = Document | Pair | Entry | BadRow


def texts_of(record: object) -> tuple[str, ...]:
    """The paragraphs of a document, or the two texts of a pair and its negatives; of other records none."""
    if isinstance(record, Document):
        return record.paragraphs
    return (*record.texts, *record.negatives) if isinstance(record, Pair) else ()


def windows(records: Iterable[Item], characters: int) -> Iterator[list[Item]]:
    """Runs of records whose texts hold `characters` or slightly more."""
    window: list[Item] = []
    held = 0
    for record in records:
        window.append(record)
        held += sum(map(len, texts_of(record)))
        if held >= characters:
            yield window
            window, held = [], 0
    if window:
        yield window


def make_document(language: str, text: str, source: str, line: int) -> Document | BadRow:
    """A document whose paragraphs are the lines of a text that are not blank; set aside if it has none, is longer than
    documents of other formats may be, begins with an element of HTML, or has a bold word, template or footnote beside a
    wiki's link. LF, CRLF and CR end a line."""
    is_markup = _HTML.match(text) or _WIKI.search(text, 0, MARKUP_CHARACTERS)
    if fault := OVER_LONG if len(text) > MAX_LINE_BYTES else MARKUP if is_markup else "":
        return BadRow(source, line, fault)
    paragraphs = tuple(stripped for raw in text.replace("\r", "\n").split("\n") if (stripped := raw.strip()))
    return Document(language, paragraphs, source, line) if paragraphs else BadRow(source, line, EMPTY_DOCUMENT)


def make_pair(
    languages: tuple[str, str], texts: tuple[str, str], source: str, line: int, negatives: tuple[str, ...] = ()
) -> Pair | BadRow:
    """Two texts as a pair; set aside if one or both are empty."""
    fault = check_texts(texts)
    return BadRow(source, line, fault) if fault else Pair(languages, texts, source, line, negatives=negatives)


def check_texts(texts: Sequence[str]) -> str:
    """Why two sentences make no pair, or nothing."""
    empty = [not text.strip() for text in texts]
    return BOTH_EMPTY if all(empty) else ONE_EMPTY if any(empty) else ""


# Splits a source into parts: units of work that can be read in parallel and together hold every record once.

PART_BYTES = 64 << 20
LF = ord("\n")


@dataclass(frozen=True, slots=True)
class Part:
    """Ranges of bytes of one file, or of files that are read side by side; `first_line` is the number of their first
    line, or 0 where it depends on how many lines the parts before it have.

    Of Parquet a span counts row groups. `kind` is what its rows are read as, of a format that may hold documents, pairs
    and entries. `columns` of a document or of the two sides of a pair are there where the source names them;
    `skip_empty` is whether a pair that lacks one of its texts is left out, and no bad row. `text` is the file that
    holds its records, once they are parsed, and `before` is added to their lines; `beside` are files with a further
    column of it each.
    """

    format: str
    paths: tuple[str, ...]
    spans: tuple[Span, ...]
    first_line: int = 1
    kind: Kind | None = None
    columns: tuple[str, ...] | None = None
    skip_empty: bool = False
    text: str = ""
    before: int = 0
    beside: tuple[str, ...] = ()


def one_part(format_: str, paths: Sequence[str]) -> list[Part]:
    """All files are one part: for tables that belong together, and for a file a language."""
    return [Part(format_, tuple(paths), (WHOLE,) * len(paths))]


def one_part_a_file(format_: str, paths: Sequence[str]) -> list[Part]:
    """Each file is a part: for formats whose files cannot be entered in the middle."""
    return [Part(format_, (path,), (WHOLE,)) for path in paths]


def split_by_size(format_: str, paths: Sequence[str]) -> list[Part]:
    """Files of lines in ranges of about PART_BYTES, wherever these end: their readers move both ends by `to_lines`."""
    parts: list[Part] = []
    for path in paths:
        size = size_of(path)
        count = 1 if size <= PART_BYTES or is_one_piece(path) else -(-size // PART_BYTES)
        spans = spans_between([size * number // count for number in range(count)])
        parts += [Part(format_, (path,), (span,), int(span.start == 0)) for span in spans]
    return parts


def undivided(parts: Sequence[Part]) -> list[Part]:
    """The files of some parts, each whole."""
    return [replace(part, spans=(WHOLE,) * len(part.spans)) for part in parts if part.first_line == 1]


def numbered(parts: Sequence[Part]) -> Sequence[Part]:
    """The parts of a source, undivided where one does not know its first line; one from the middle of a file stays."""
    is_numbered = all(part.text or part.first_line for part in parts)
    return parts if is_numbered or not parts[0].first_line else undivided(parts)


def to_lines(path: str, span: Span, *, blank: bool = False) -> Span:
    """A range of bytes whose two ends are moved on to where a line begins: with `blank` behind a blank line."""
    if span == WHOLE:
        return span

    def move(file: IO[bytes], offset: int | None) -> int | None:
        if not offset:
            return offset
        file.seek(offset - 1)
        _read_line(file)  # the rest of a line, never a blank one
        while blank and _read_line(file).strip():
            pass
        return file.tell()

    with open_bytes(path) as file:
        return Span(move(file, span.start) or 0, move(file, span.end))


def split_in_parallel(format_: str, paths: Sequence[str]) -> list[Part]:
    """Files whose lines belong together, split at the same lines; one part if one of them is one piece or too short."""
    single = one_part(format_, paths)
    if size_of(paths[0]) <= PART_BYTES or any(map(is_one_piece, paths)):
        return single
    numbers, line, at = [1], 1, 0
    with open_bytes(paths[0]) as file:
        while chunk := file.read(min(CHUNK_BYTES, PART_BYTES)):
            line, at = line + chunk.count(b"\n"), at + len(chunk)
            if at >= len(numbers) * PART_BYTES and line >= numbers[-1]:
                numbers.append(line + 1)
    offsets, *others = (find_lines(path, numbers) for path in paths)
    if any(len(column) < len(offsets) for column in others):
        return single
    spans = zip(*(spans_between(column[: len(offsets)]) for column in (offsets, *others)), strict=True)
    return [Part(format_, tuple(paths), row, number) for row, number in zip(spans, numbers, strict=False)]


def count_bytes(parts: Sequence[Part]) -> list[float]:
    """How much of its files each part is; of Parquet, whose spans are of row groups, an equal share."""
    sizes = {path: size_of(path) for path in {path for part in parts for path in part.paths}}
    sharing = Counter(path for part in parts for path in part.paths)

    def of(part: Part, path: str, span: Span) -> float:
        if part.format == "parquet":
            return sizes[path] / sharing[path]
        return (sizes[path] if span.end is None else span.end) - span.start

    return [sum(of(part, *file) for file in zip(part.paths, part.spans, strict=True)) for part in parts]


def spans_between(offsets: Sequence[int]) -> list[Span]:
    """From each offset to the next, and from the last to the end."""
    return [Span(start, end) for start, end in zip(offsets, [*offsets[1:], None], strict=True)]


def _read_line(file: IO[bytes]) -> bytes:
    """Moves past the end of the line and returns its bytes, or a mark for an over-long line; empty at the end."""
    head = piece = file.readline(MAX_LINE_BYTES)
    while piece and not piece.endswith(b"\n"):
        head, piece = b"over-long", file.readline(MAX_LINE_BYTES)
    return head


def find_lines(path: str, numbers: Sequence[int]) -> list[int]:
    """Byte offsets at which the lines with these ascending numbers begin; fewer where the file has fewer lines."""
    offsets = [0] if numbers[:1] == [1] else []
    ended = position = 0  # lines, and bytes
    with open_bytes(path) as file:
        while len(offsets) < len(numbers) and (chunk := file.read(CHUNK_BYTES)):
            ends = np.flatnonzero(np.frombuffer(chunk, np.uint8) == LF) + 1
            here = [number - 2 - ended for number in numbers[len(offsets) :]]  # line 2 begins at the first end
            offsets += [position + int(ends[number]) for number in here if number < len(ends)]
            ended, position = ended + len(ends), position + len(chunk)
    return offsets
