"""The end of `xalign continue` in a terminal: the table of base against yours, paths, and the next commands."""

from __future__ import annotations

import io

import rich.box
import rich.table
from rich.console import Console
from rich.text import Text

from xalign_ray.results.continued import Continued, of_comparison, sentence
from xalign_ray.results.tables import Table

_IN_TERMINAL = ("Translations found: ", "Masked-LM loss")  # how the titles begin; the rest stands on the page
_SHORTEST = 60


def as_text(found: Continued, width: int) -> str:
    """The finding, its tables and its cost, as lines of at most `width` characters."""
    console = Console(file=io.StringIO(), width=max(width, _SHORTEST), highlight=False)
    console.print(Text(f"{found.name} -> {found.run}: {', '.join(found.methods)}, {found.cost}."))
    for table in of_comparison(found):
        if table.title.startswith(_IN_TERMINAL):
            console.print("", Text(table.title, "bold"), _drawn(table), Text(table.note), sep="\n")
    console.print()
    console.print(Text(sentence(found)))
    for note in found.notes:
        console.print(Text(note))
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]


def _drawn(table: Table) -> rich.table.Table:
    drawn = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for heading in table.header:
        drawn.add_column(heading, justify="left" if heading in ("language", "verdict", "during") else "right")
    for row in table.rows:
        drawn.add_row(*(Text(str(cell)) for cell in row))
    return drawn
