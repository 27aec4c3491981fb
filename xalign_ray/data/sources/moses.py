"""Reads Moses pairs: two files whose line i translate each other, and an optional third with word alignments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from xalign_ray.data.sources.open import Line, read_lines
from xalign_ray.data.sources.parts import Part
from xalign_ray.data.sources.records import BadRow, Pair, Record
from xalign_ray.errors import DataError
from xalign_ray.text.words import BLANKS, split_words

BOTH_EMPTY = "both sides are empty"
ONE_EMPTY = "one side is empty"
_PHARAOH = re.compile(r"(\d+-\d+([ \t]+\d+-\d+)*)?")


def read_moses(part: Part, languages: Sequence[str]) -> Iterator[Record]:
    """Pairs of sentences; `part.paths` are first side, second side and, if there is one, the Pharaoh alignment.

    The alignment counts words between U+0020 and TAB, as fast_align and eflomal do: a no-break space parts no words.

    Raises:
      DataError: the files have different numbers of lines, so that no line can be trusted to match its partner.
      BrokenFileError: one of them cannot be read on; after the pairs before it.
    """
    readers = [read_lines(path, span, part.first_line) for path, span in zip(part.paths, part.spans, strict=True)]
    return pair_lines(readers, part.paths, languages)


def pair_lines(readers: Sequence[Iterator[Line]], names: Sequence[str], languages: Sequence[str]) -> Iterator[Record]:
    """As read_moses, of lines however they were come by; `names` says in messages and records where each is from."""
    first, second = languages
    for row in zip_longest(*readers):
        broken = [(name, line) for name, line in zip(names, row, strict=True) if line and line.fault]
        if broken:
            name, line = broken[0]
            yield BadRow(name, line.number, line.fault)
            continue
        if None in row:
            raise DataError(_explain_lengths(names, row, readers))
        yield _pair(row, (first, second), names[0])


def _pair(row: Sequence[Line], languages: tuple[str, str], source: str) -> Record:
    texts = row[0].text.strip(BLANKS), row[1].text.strip(BLANKS)
    alignment = " ".join(row[2].text.split()) if len(row) > 2 else None
    if fault := check_texts(texts) or check_alignment(alignment, texts):
        return BadRow(source, row[0].number, fault)
    return Pair(languages, texts, source, row[0].number, alignment)


def check_texts(texts: Sequence[str]) -> str:
    """Why two sentences make no pair, or nothing."""
    empty = [not text.strip() for text in texts]
    return BOTH_EMPTY if all(empty) else ONE_EMPTY if any(empty) else ""


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


def _explain_lengths(names: Sequence[str], row: Sequence[Line | None], readers: Sequence[Iterator[Line]]) -> str:
    """Reads the longer files to their ends, for the message to give all counts."""
    before = next(line.number for line in row if line) - 1
    counts = [before + (line is not None) + sum(1 for _ in reader) for line, reader in zip(row, readers, strict=True)]
    listed = ", ".join(f"{name} has {count:,} lines" for name, count in zip(names, counts, strict=True))
    return f"Moses files must have the same number of lines, but {listed}. Fetch or extract these files together again."
