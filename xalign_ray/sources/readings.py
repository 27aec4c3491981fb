"""The three readings of a table: documents, pairs of sentences, and entries of a dictionary."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, product
from typing import Any

from xalign_ray.sources.archives import files_of
from xalign_ray.sources.columns import fulfils, resolve_columns
from xalign_ray.sources.html import has_markup
from xalign_ray.sources.open import Chunks
from xalign_ray.sources.records import (
    BadRow,
    Entry,
    Kind,
    Lines,
    Noted,
    Part,
    Record,
    Skipped,
    make_document,
    make_pair,
)
from xalign_ray.sources.tables import MISSING, SourceRow, SourceTable, TableFile, one_line
from xalign_ray.vocabulary.dictionary import trim_punctuation

OpenTable = Callable[[TableFile], SourceTable]
NO_TEXT = "row has no text"
ONE_TERM = "dictionary line has one column"
NO_TERM = "term is empty"
PUNCTUATION = "dictionary lines with punctuation around a word, taken off"
BRACKETS = "terms with notes in brackets, taken off"
NOTES = "parts of speech and notes, not read"
LISTS, _LIST = "terms with a comma or semicolon in them, each read as one term", re.compile("[,;\uff0c\uff1b\u3001]")
UNDERSCORES = "terms with underscores between their words, read as blanks"
MARKUP = "term has HTML tags or entities"
_UNDERSCORE = re.compile(r"(?<=[^\W_])_+(?=[^\W_])")
_BRACKETED = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]|<[^<>]*>|\([^()]*\)")
_LETTER = "[A-Za-z\u00c0-\u024f\u0370-\u052f]"  # Latin, Greek, Cyrillic; Chinese has no blanks between words
_OPTIONAL = re.compile(rf"\(({_LETTER}+)\)(?={_LETTER})")  # within a word: (in)valid


def read_part_of_table(
    open_table: OpenTable, part: Part, kind: Kind, languages: Sequence[str]
) -> Iterator[Record | Skipped | Noted | Lines]:
    """The records of a part of a table, in the columns that the source names, or that resolve_columns finds.

    The first rows of a table decide for all: a row that differs is bad, left out or noted, and counted so.

    Raises:
        DataError: it has no such columns, or is no table of its format.
        BrokenFileError: the rest of it cannot be read.
    """
    (path,), (span,) = part.paths, part.spans
    for file in files_of(path) if kind == "entries" and part.format != "xlsx" else [Chunks(path, span)]:
        table = open_table(TableFile(file, kind, part.first_line))
        yield from (Noted(what, count) for what, count in table.noted.items())
        keys = resolve_columns(table, languages, part.columns or (), kind)
        where, *negatives = (part.columns or ())[2:] or ("",)
        texts = [*range(len(languages)), *range(len(keys) - len(negatives), len(keys))]
        row = SourceRow(part.first_line - 1)
        for row in table.read(keys):
            if row.note:
                yield Noted(row.note, 1)
            if row.skipped:
                yield Skipped(row.skipped)
            elif row.fault:
                yield BadRow(table.path, row.number, row.fault)
            elif where and not fulfils(row.cells[2], where):
                yield Skipped(f"not {where}")
            elif kind == "entries":
                yield from _entries(row, table, languages)
            elif other := [keys[n] for n in texts if not _is_text(row.cells[n], may_be_list=n > 0)]:
                yield BadRow(table.path, row.number, f"'{other[0]}' holds no text")
            elif kind == "documents" and row.cells[0] is None:
                yield BadRow(table.path, row.number, NO_TEXT)
            elif kind == "documents":
                text = "" if row.cells[0] in MISSING else row.cells[0]
                yield make_document(languages[0], text, table.path, row.number)
            else:
                yield from _pairs([row.cells[n] for n in texts], row.number, table, (languages[0], languages[1]))
        yield Lines(row.number + 1 - part.first_line)


def _is_text(cell: Any, may_be_list: bool) -> bool:
    """Whether a cell holds a text or nothing, or a list of texts."""
    return all(isinstance(text, str | None) for text in (cell if may_be_list and isinstance(cell, list) else [cell]))


def _pairs(cells: Sequence[Any], number: int, table: SourceTable, languages: tuple[str, str]) -> Iterator[Record]:
    """The pairs of a row, each text on one line: of a list of translations one each, with the row's negatives."""

    def line(text: str | None) -> str:
        text = one_line(text or "")
        return "" if text in MISSING and not table.languages else text

    first, second, *others = cells
    lists = (cell if isinstance(cell, list) else [cell] for cell in others)
    negatives = tuple(filter(None, map(line, chain.from_iterable(lists))))
    for translation in second or [""] if isinstance(second, list) else [second]:
        yield make_pair(languages, (line(first), line(translation)), table.path, number, negatives)


def _entries(row: SourceRow, table: SourceTable, languages: Sequence[str]) -> Iterator[Record | Noted]:
    """Each term of the first language with each of the second, without notes in brackets and outer punctuation.

    An underscore between words is a blank: running text has no other. A term that is brackets and punctuation alone
    stays. Without a term on either place, or with one that is none, it is a bad row.
    """
    if any(cell is None for cell in row.cells):
        yield BadRow(table.path, row.number, ONE_TERM)
        return
    if row.others:
        yield Noted(NOTES, row.others)
    first, second = languages
    lefts, rights = ([*map(str, cell if isinstance(cell, list) else [cell])] for cell in row.cells[:2])
    if any(map(has_markup, (*lefts, *rights))):
        yield BadRow(table.path, row.number, MARKUP)
        return
    if underscores := sum(bool(_UNDERSCORE.search(term)) for term in (*lefts, *rights)):
        yield Noted(UNDERSCORES, underscores)
    cleaned: list[list[str]] = []
    is_trimmed = False
    for terms in (lefts, rights):
        bare = [bare_term for term in terms if (bare_term := " ".join(_UNDERSCORE.sub(" ", term).split()))]
        plain = [" ".join(_BRACKETED.sub(" ", _OPTIONAL.sub(r"\1", term)).split()) or term for term in bare]
        trimmed = [trim_punctuation(term) for term in plain]
        if brackets := sum(a != b for a, b in zip(bare, plain, strict=True)):
            yield Noted(BRACKETS, brackets)
        is_trimmed |= plain != trimmed
        cleaned.append(list(dict.fromkeys(trimmed)))
    if is_trimmed:
        yield Noted(PUNCTUATION, 1)
    if lists := sum(bool(_LIST.search(term)) for terms in cleaned for term in terms):
        yield Noted(LISTS, lists)
    if not all(cleaned):
        yield BadRow(table.path, row.number, NO_TERM)
    for left, right in product(*cleaned):
        yield Entry((first, second), (left, right), table.path, row.number)
