"""Reads files of lines: plain text, and Moses pairs, two files whose line i translate each other.

A blank line ends a document of text. Moses pairs are read in zip and tar too, as OPUS publishes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest

from xalign_ray.config.language_codes import check_language, is_language
from xalign_ray.errors import DataError
from xalign_ray.sources.archives import Member, member_names
from xalign_ray.sources.language_id import fits
from xalign_ray.sources.open import Line, number_lines, read_lines
from xalign_ray.sources.records import (
    BadRow,
    Document,
    Lines,
    Noted,
    Pair,
    Part,
    Record,
    Skipped,
    check_texts,
    list_some,
    to_lines,
)
from xalign_ray.vocabulary.words import split_words

MAX_DOCUMENT_LINES = 10_000


def read_text(part: Part, languages: Sequence[str]) -> Iterator[Record | Lines]:
    """Documents of a text file. If no blank line stands between its first 10,000 lines, each line is a document.

    A document of more than 10,000 lines is split after each 10,000, so that memory stays bounded.
    """
    (path,), (language,) = part.paths, languages
    borders = has_borders(path)
    limit = MAX_DOCUMENT_LINES if borders else 1
    pending: list[str] = []
    first, line = 0, Line(part.first_line - 1, "", "")  # the first line of a document, the last of the file
    for line in read_lines(path, to_lines(path, part.spans[0], blank=borders), part.first_line, sentences=True):
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
    yield Lines(line.number + 1 - part.first_line)


def has_borders(path: str) -> bool:
    """Whether a blank line stands between two lines of text among the first 10,000 lines of a file."""
    kinds = [bool(line.fault or line.text.strip()) for line in islice(read_lines(path), MAX_DOCUMENT_LINES)]
    words = "".join("t" if is_text else "_" for is_text in kinds)
    return "_" in words.strip("_")


_PHARAOH = re.compile(r"(\d+-\d+([ \t]+\d+-\d+)*)?")
_LINKED_LINES = range(20, 1000)  # so many tell whether links count from 0: one of their sentences links its first word


def read_moses(part: Part, languages: Sequence[str]) -> Iterator[Record]:
    """Pairs of sentences; `part.paths` are first side, second side and, if there is one, the Pharaoh alignment.

    The alignment counts words between U+0020 and TAB, as fast_align and eflomal do: a no-break space parts no words.

    Raises:
      DataError: the files have different numbers of lines, so that no line can be trusted to match its partner.
      BrokenFileError: one of them cannot be read on.
    """
    spans = zip(part.paths, part.spans, strict=True)
    readers = [
        read_lines(path, span, part.first_line, sentences=number < 2) for number, (path, span) in enumerate(spans)
    ]
    return pair_lines(readers, part.paths, languages)


def pair_lines(readers: Sequence[Iterator[Line]], names: Sequence[str], languages: Sequence[str]) -> Iterator[Record]:
    """As read_moses, of lines however they were come by; `names` has the origin of each for messages and records."""
    first, second = languages
    for row in zip_longest(*readers):
        broken = [(name, line) for name, line in zip(names, row, strict=True) if line and line.fault]
        if broken:
            name, line = broken[0]
            yield BadRow(name, line.number, line.fault)
            continue
        if None in row:
            raise _other_rows(names, next(line.number for line in row if line))
        yield _pair(row, (first, second), names[0])


def pair_documents(
    readers: Sequence[Iterable[Record | Skipped | Noted | Lines]], names: Sequence[str], languages: Sequence[str]
) -> Iterator[Record]:
    """Pairs of documents that have the same number in two files, each on one line; as read_moses."""
    first, second = languages
    rows = zip_longest(
        *((side for side in reader if not isinstance(side, Skipped | Noted | Lines)) for reader in readers)
    )
    for left, right in rows:
        if left is None or right is None or left.line != right.line:
            raise _other_rows(names, min(side.line for side in (left, right) if side))
        if isinstance(left, Document) and isinstance(right, Document):
            texts = " ".join(left.paragraphs), " ".join(right.paragraphs)
            yield Pair((first, second), texts, names[0], left.line)
        else:
            yield next(side for side in (left, right) if isinstance(side, BadRow))


def _other_rows(names: Sequence[str], number: int) -> DataError:
    return DataError(
        f"{' and '.join(names)} do not have the same rows (from row {number:,} on), so that no row can be trusted to "
        "translate the other. Fetch or write them together again."
    )


def _pair(row: Sequence[Line], languages: tuple[str, str], source: str) -> Record:
    texts = " ".join(split_words(row[0].text)), " ".join(split_words(row[1].text))
    alignment = " ".join(row[2].text.split()) if len(row) > 2 else None
    if fault := check_texts(texts) or check_alignment(alignment, texts):
        return BadRow(source, row[0].number, fault)
    return Pair(languages, texts, source, row[0].number, alignment)


def check_alignment(alignment: str | None, texts: Sequence[str]) -> str:
    """Why an alignment does not fit its sentences, or nothing."""
    if not alignment:
        return ""
    if not _PHARAOH.fullmatch(alignment):
        return "alignment is not of the form i-j i-j"
    lengths = [len(split_words(text)) for text in texts]
    links = [link.split("-") for link in alignment.split()]
    beyond = any(int(i) >= lengths[0] or int(j) >= lengths[1] for i, j in links)
    return "alignment points beyond the sentence" if beyond else ""


def check_links(paths: Sequence[str]) -> None:
    """Looks at the beginning of the alignment, if line-aligned files have one behind their two sides.

    Raises:
      DataError: its links count words from 1: none names word 0 (of most lines one names a word beyond the last, too).
    """
    for path in paths[2:]:
        lines = (line.text.split() for line in read_lines(path))
        linked = list(islice(filter(None, lines), _LINKED_LINES.stop))
        words = {int(word) for line in linked for link in line if _PHARAOH.fullmatch(link) for word in link.split("-")}
        if len(linked) >= _LINKED_LINES.start and words and 0 not in words:
            raise DataError(
                f"{path}: no link of its first {len(linked)} aligned lines names word 0, so it counts words from 1. "
                "Write links that count from 0, as fast_align and eflomal do."
            )


def read_opus(part: Part, languages: Sequence[str]) -> Iterator[Record]:
    """Pairs of the two members whose names end in the languages, as `Tanzil.en-sw.sw` does; `source` is archive:member.

    Raises:
      DataError: the archive is not whole, is encrypted, or has not one member for each language.
      BrokenFileError: a member cannot be read on.
    """
    (path,) = part.paths
    names = member_names(path)
    members = [Member(path, _find_member(path, names, code)) for code in languages]
    return pair_lines([*map(number_lines, members)], [member.path for member in members], languages)


def _find_member(path: str, names: Sequence[str], language: str) -> str:
    """`zh` takes .zh, and .zh_CN if that is the only Chinese there."""
    written = {name: name.rpartition(".")[2].replace("_", "-") for name in names if "." in name}
    codes = {name: check_language(code) for name, code in written.items() if is_language(code)}
    exact = [name for name, code in codes.items() if code == language]
    fitting = exact or [name for name, code in codes.items() if fits(code, language)]
    if len(fitting) != 1:
        listed = list_some(fitting or names) or "nothing"
        count = f"{len(fitting)} members" if fitting else "no member"
        raise DataError(f"{path} has {count} whose name ends in .{language}; it holds {listed}.")
    return fitting[0]
