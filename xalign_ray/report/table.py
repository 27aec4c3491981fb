"""A table as values, and its three faces: rich for the terminal, Markdown for the model card, HTML for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

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
    """

    text: str
    note: str = ""
    quiet: bool = False
    below: str = ""


@dataclass(frozen=True)
class Table:
    """A table with a title; the first `names` columns hold words, all others numbers.

    Attributes:
        title: what it shows.
        header: one heading a column.
        rows: as many entries each; a plain string is an entry without a note.
        note: a sentence below it.
        names: number of columns that are set flush left.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Entry | str, ...], ...]
    note: str = ""
    names: int = 1


def as_rich(table: Table) -> rich.table.Table:
    """For the terminal."""
    drawn = rich.table.Table(
        title=table.title, caption=table.note or None, box=rich.box.SIMPLE_HEAD, title_justify="left"
    )
    drawn.caption_justify = "left"
    for number, heading in enumerate(table.header):
        side = "left" if number < table.names else "right"
        drawn.add_column(Text(heading), justify=side, overflow="fold", no_wrap=number >= table.names)
    for row in table.rows:
        drawn.add_row(*(_rich_entry(_entry(cell)) for cell in row))
    return drawn


def as_markdown(table: Table) -> str:
    """For a model card: a pipe table with its title as a heading of the third level."""
    marks = ["---" if number < table.names else "---:" for number in range(len(table.header))]
    lines = [
        _pipes(table.header),
        _pipes(marks),
        *(_pipes([_plain(_entry(cell)) for cell in row]) for row in table.rows),
    ]
    return "\n".join([f"### {table.title}", "", *lines, *(["", table.note] if table.note else []), ""])


def as_html(table: Table) -> str:
    """For the page: a figure with a caption, the table scrolling sideways where the window is narrow."""
    head = "".join(f"<th{_side(number, table)}>{_words(heading)}</th>" for number, heading in enumerate(table.header))
    rows = "\n".join(f"<tr>{_html_row(row, table)}</tr>" for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<h3>{escape(table.title)}</h3>\n<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>{note}"
    )


def _entry(cell: Entry | str) -> Entry:
    return Entry(cell) if isinstance(cell, str) else cell


def _rich_entry(entry: Entry) -> Text:
    return Text(_plain(entry) if entry.quiet else entry.text, style="dim" if entry.quiet else "")


def _plain(entry: Entry) -> str:
    text = f"{entry.text} ({entry.note})" if entry.note else entry.text
    return f"{text}; {entry.below}" if entry.below else text


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _side(number: int, table: Table) -> str:
    return ' class="name"' if number < table.names else ""


def _words(heading: str) -> str:
    """A heading that breaks between words only: recipes' names have hyphens."""
    return " ".join(f"<span>{escape(word)}</span>" for word in heading.split())


def _html_row(row: Sequence[Entry | str], table: Table) -> str:
    cells = []
    for number, entry in enumerate(map(_entry, row)):
        tag = "th" if number == 0 else "td"
        names = [*(["name"] if number < table.names else []), *(["quiet"] if entry.quiet else [])]
        attribute = f' class="{" ".join(names)}"' if names else ""
        text, note = escape(entry.text), f" <small>{escape(entry.note)}</small>" if entry.note else ""
        text += f" <small>{escape(entry.below)}</small>" if entry.below else ""
        # A pale number has its remark in front, where it does not push the number out of its column.
        cells.append(
            f"<{tag}{attribute}>{note.strip()} {text}</{tag}>"
            if entry.quiet
            else f"<{tag}{attribute}>{text}{note}</{tag}>"
        )
    return "".join(cells)
