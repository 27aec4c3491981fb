"""Columns of files of tagged words, found by looking: where the word stands, and where its tag."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from xalign_ray.text.words import BLANKS

_INDEX = re.compile(r"[01]")  # of a sentence's first word
_DOCSTART = "-DOCSTART-"
_CHUNK = re.compile(r"O|[BI]-\S+")


@dataclass(frozen=True)
class TaggedColumns:
    """The form of a file of tagged words.

    Attributes:
        what: a row in words, for messages.
        separator: a tab or a blank; words may hold blanks, so that a row of two columns is parted at its last.
        count: of columns.
        word, tag: their places.
        has_comments: whether a line that begins with `#` is none of a word.
    """

    what: str
    separator: str
    count: int
    word: int
    tag: int
    has_comments: bool = False

    def split(self, line: str) -> tuple[str, str] | None:
        """The word and the tag of a row; None where it has other columns, or no word."""
        if self.separator == " " and self.count == 2:
            columns = line.rstrip(" ").split(" ")
            if len(columns) > 3 and _CHUNK.fullmatch(columns[-2]):  # CoNLL-2003's four, among rows of two
                return columns[0], columns[-1]
            cells = line.rstrip(" ").rsplit(" ", 1)
        else:
            cells = line.rstrip(" ").split(self.separator)
        if len(cells) != self.count or not cells[self.word]:
            return None
        return cells[self.word], cells[self.tag].strip(BLANKS)

    def is_row(self, line: str) -> bool:
        """Whether a line is one of a word: no comment, and not the beginning of a document."""
        return not (line.startswith(_DOCSTART) or (self.has_comments and line.startswith("#")))


TWO_BY_TAB = TaggedColumns("a word, a tab and its tag", "\t", 2, 0, 1)
TWO_BY_BLANK = TaggedColumns("a word, a space and its tag", " ", 2, 0, 1)
_CONLLU = TaggedColumns("the ten columns of CoNLL-U", "\t", 10, 1, 3, has_comments=True)


def find_columns(lines: Sequence[str]) -> TaggedColumns:
    """The form of a file by its first row; of columns between blanks by all rows, since words may hold blanks.

    A word and a tag, by tab or blank; a word first and its tag last, as in CoNLL-2002 and 2003; an index, a word and
    its tag, as in WikiAnn, GermEval and Universal NER; CoNLL-U.
    """
    rows = [line for line in lines if line.strip(BLANKS) and not line.startswith((_DOCSTART, "# ", "#\t"))]
    if not rows:
        return TWO_BY_TAB
    cells = rows[0].rstrip(" ").split("\t")
    count = len(cells)
    if count == 10:
        return _CONLLU
    if count > 2 and _INDEX.fullmatch(cells[0]):
        more = "" if count == 3 else f" in {count} columns" if count != 5 else " in the five columns of Universal NER"
        what = f"an index, a word and its tag{more}, parted by tabs"
        return TaggedColumns(what, "\t", count, 1, 2, has_comments=True)
    if count > 2:
        return TaggedColumns(
            f"{count} columns parted by tabs, a word first and its tag last", "\t", count, 0, count - 1
        )
    if count == 2:
        return TWO_BY_TAB
    widths = {len(line.rstrip(" ").split(" ")) for line in rows}
    if len(widths) == 1 and (width := widths.pop()) > 2:
        what = f"{width} columns parted by spaces, a word first and its tag last"
        return TaggedColumns(what, " ", width, 0, width - 1)
    return TWO_BY_BLANK if " " in rows[0] else TWO_BY_TAB
