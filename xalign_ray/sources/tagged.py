"""Reads files of tagged words, whose columns are found by looking: where the word stands, and where its tag."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from xalign_ray.errors import DataError
from xalign_ray.vocabulary.words import BLANKS

BOM = "\ufeff"  # alone in a line where files were joined that begin with it
TaggedWords = tuple[tuple[str, ...], tuple[str, ...]]  # the words of a sentence, and a tag for each
_NUMBER = re.compile(r"[0-9]{1,9}")
_SKIPPED_ID = re.compile(r"[1-9][0-9]*-[1-9][0-9]*|[0-9]+\.[1-9][0-9]*")  # multiword ranges 1-2, empty nodes 1.1
_DOCSTART = "-DOCSTART-"
_COMMENT = re.compile(r"# [\w.:-]+ = ")  # as in CoNLL-U: `# sent_id = 1`
_CHUNK = re.compile(r"O|[BI]-\S+")


@dataclass(frozen=True)
class TaggedColumns:
    """The form of a file of tagged words.

    Attributes:
        what: a row in words, for messages.
        separator: a tab or a blank; words may hold blanks, so that a row of two columns is parted at its last.
        count: of columns.
        word, tag: their places.
        has_index: whether a row begins with a number; a line that begins with `#` is then none of a word.
    """

    what: str
    separator: str
    count: int
    word: int
    tag: int
    has_index: bool = False

    def read(self, line: str, where: str) -> tuple[str, str]:
        """The word, which may be empty, and the tag of a row; DataError where it has other columns."""
        if row := self._split(line):
            return row
        count, hint = len(_split_cells(line, self.separator)), ""
        if count < self.count == 2:
            hint = " XTREME's own test files lack the tag: take those of the data set itself."
        elif count > self.count and self.separator == " ":
            hint = " If its word holds a blank, part all columns by tabs."
        raise DataError(f"{where}: not {self.what}: {line!r}.{hint}")

    def _split(self, line: str) -> tuple[str, str] | None:
        cells = _split_cells(line, self.separator)
        if self.separator == " " and self.count == 2:
            if len(cells) > 3 and _CHUNK.fullmatch(cells[-2]):  # CoNLL-2003's four, among rows of two
                return cells[0], cells[-1]
            word, blank, tag = line.rstrip(" ").rpartition(" ")
            return (word.strip(" "), tag.strip(BLANKS)) if blank else None
        if len(cells) != self.count or (self.has_index and not _NUMBER.fullmatch(cells[0])):
            return None
        return cells[self.word], cells[self.tag].strip(BLANKS)

    def is_row(self, line: str) -> bool:
        """Whether a line is one of a word: no comment, and not the beginning of a document."""
        if self.has_index and (line.startswith("#") or _SKIPPED_ID.fullmatch(_split_cells(line, self.separator)[0])):
            return False
        return not line.startswith(_DOCSTART)


def _split_cells(line: str, separator: str) -> list[str]:
    """The columns of a row. Several blanks part as one does; between two tabs is an empty column."""
    cells = line.rstrip(" ").split(separator)
    return [cell for cell in cells if cell] if separator == " " else cells


TWO_BY_TAB = TaggedColumns("a word, a tab and its tag", "\t", 2, 0, 1)
TWO_BY_BLANK = TaggedColumns("a word, a space and its tag", " ", 2, 0, 1)
CONLLU = TaggedColumns("the ten columns of CoNLL-U", "\t", 10, 1, 3, has_index=True)


def find_columns(lines: Sequence[str]) -> TaggedColumns:
    """The form of a file by what most of its rows have; `split` refuses the others.

    A word and a tag, by tab or blank; a word first and its tag last, as in CoNLL-2002 and 2003; an index, a word and
    its tag, as in WikiAnn, GermEval and Universal NER; CoNLL-U.
    """
    rows = [line for line in lines if line.strip(BLANKS) and not line.startswith((_DOCSTART, "# ", "#\t"))]
    for separator, parted, two in (("\t", "tabs", TWO_BY_TAB), (" ", "spaces", TWO_BY_BLANK)):
        cells = [_split_cells(row, separator) for row in rows]
        widths = Counter(map(len, cells))
        count = max(widths, key=widths.__getitem__, default=1)
        if count == 2:
            return two
        if count > 2 and not _counts_up([row[0] for row in cells if len(row) == count]):
            what = f"{count} columns parted by {parted}, a word first and its tag last"
            return TaggedColumns(what, separator, count, 0, count - 1)
        if count == 10 and separator == "\t":
            return CONLLU
        if count > 2:
            more = {3: "", 5: " in the five columns of Universal NER"}.get(count, f" in {count} columns")
            what = f"an index, a word and its tag{more}, parted by {parted}"
            return TaggedColumns(what, separator, count, 1, 2, has_index=True)
    return TWO_BY_TAB


def _counts_up(firsts: Sequence[str]) -> bool:
    """Whether most rows begin with 0, 1, or one more than the row before: the word `1` alone is no index."""
    numbers = [int(first) if _NUMBER.fullmatch(first) else -2 for first in firsts if not _SKIPPED_ID.fullmatch(first)]
    return 2 * sum(now in (0, 1, before + 1) for before, now in pairwise([-2, *numbers])) > len(numbers)


def read_tagged(
    lines: Sequence[str], path: Path, check_tag: Callable[[str, str], None]
) -> tuple[TaggedColumns, list[TaggedWords]]:
    """The form of a file and the sentences of its lines, which empty lines part.

    Args:
        check_tag: called with each tag and its place; raises DataError where the tag cannot be.

    Raises:
        DataError: a row of other columns than most have.
    """
    form = find_columns(lines)
    sentences: list[list[tuple[str, str]]] = [[]]
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        if not line.strip(BLANKS) or line == BOM:
            sentences.append([])
        elif form.is_row(line) and (sentences[-1] or not _COMMENT.match(line)):
            try:
                word, tag = form.read(line, where)
                check_tag(tag, where)
                sentences[-1].append((word, tag))
            except DataError:
                if sentences[-1] or not line.startswith("# "):  # a comment stands above the words of a sentence
                    raise
    return form, [(words, tags) for rows in sentences if rows for words, tags in [zip(*rows, strict=True)]]
