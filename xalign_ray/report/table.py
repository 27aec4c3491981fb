"""A table as values; templates/tables.html and templates/tables.md set it, and rich prints it in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import rich.box
import rich.table
from rich.text import Text


@dataclass(frozen=True)
class Entry:
    """What stands in one cell.

    Attributes:
        text: what is read first.
        note: a small remark on it.
        quiet: printed pale, because the number says nothing.
        below: a second number that belongs to the first, small, in a line of its own where there are lines.
        best: printed bold.
    """

    text: str
    note: str = ""
    quiet: bool = False
    below: str = ""
    best: bool = False

    @property
    def line(self) -> str:
        """All of it in one line."""
        text = f"{self.text} ({self.note})" if self.note else self.text
        return f"{text}; {self.below}" if self.below else text


NONE = Entry("-", quiet=True)


@dataclass(frozen=True)
class Table:
    """A table with a title; the first `names` columns hold words, all others numbers.

    Attributes:
        title: what it shows.
        header: one heading a column.
        rows: as many entries each, or a single one that is a heading of those below it; a string becomes an entry.
        note: a sentence below it.
        names: number of columns that are set flush left.
        link: a file with the same numbers.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    names: int = 1
    link: str = ""

    def __post_init__(self) -> None:
        rows = (tuple(Entry(cell) if isinstance(cell, str) else cell for cell in row) for row in self.rows)
        object.__setattr__(self, "rows", tuple(rows))


def as_rich(table: Table) -> rich.table.Table:
    """For the terminal."""
    drawn = rich.table.Table(title=table.title, box=rich.box.SIMPLE_HEAD, title_justify="left")
    for number, heading in enumerate(table.header):
        justify = "left" if number < table.names else "right"
        drawn.add_column(Text(heading), justify=justify, overflow="fold", no_wrap=number >= table.names)
    for row in table.rows:
        drawn.add_row(*(Text(cell.line, style="dim" if cell.quiet else "") for cell in row))
    return drawn
