"""What the papers print next to ours, and the verdicts on their claims, as tables for a page and for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import rich.box
import rich.table
from rich.text import Text

from xalign_ray.results.against_papers import AgainstPapers, ComparedTable, Ours, Step, steps_of
from xalign_ray.results.printed import ZERO_SHOT, Correlation, PrintedCell, PrintedRow, read_paper
from xalign_ray.results.tables import NONE, PLUS_MINUS, Entry, Row, Table, show_average
from xalign_ray.results.verdicts import Verdict

CELLS, CLAIMS = "papers.csv", "claims.csv"
_MAX_CELLS = 40  # rows of a paper in a terminal
_JUDGED = (
    "A claim holds where the 95 % interval of each of its differences is above zero, and does not where one is below; "
    "the intervals of a claim are all right in 95 % of the cases. One seed is undecided. A correlation of fewer than "
    "ten arms is described, not judged. All arms of a claim are scored on the same test set. Percent and points; what "
    "is printed is compared with what it is about here, at our scale and on our languages: a verdict is on the claim "
    "at that scale, not on the paper."
)

Cells = Mapping[str, tuple[PrintedCell, Ours | None]]


def verdict_table(found: AgainstPapers) -> Table | None:
    """What became of each claim and, below it, its steps: printed, ours with its interval; None without a claim."""
    rows = [row for one in found.verdicts for row in _verdict_rows(one, found.scale_of(one.claim))]
    header = ("verdict: claim", "printed", "ours", "languages", "seeds", "scale")
    return Table("Claims judged", header, rows, _JUDGED, link=CLAIMS) if rows else None


def cell_tables(found: AgainstPapers) -> list[Table]:
    """The papers' tables in their own shape: rows and columns that both have, and rows that only exist in print."""
    return [_cell_table(one) for one in found.tables]


def sources(found: AgainstPapers) -> list[str]:
    """What to cite, a line a paper."""
    return [f"{name.upper()}: {read_paper(name).title}. {read_paper(name).citation}." for name in found.papers]


def terminal_tables(found: AgainstPapers) -> Iterator[rich.table.Table]:
    """The cells that both have, a row a cell and at most 40 a paper, and the verdicts."""
    for paper in found.papers:
        rows = [row for one in found.tables if one.paper == paper for row in _terminal_cells(one)]
        if not rows:
            continue
        more = f"; {len(rows) - _MAX_CELLS} more rows in {CELLS}" if len(rows) > _MAX_CELLS else ""
        yield _draw(f"{paper.upper()}, printed and ours{more}", ("", "printed", "ours", "seeds"), rows[:_MAX_CELLS])
    rows = [row for one in found.verdicts for row in _terminal_claim(one)]
    if rows:
        yield _draw("Claims of the papers, with 95 % intervals", ("", "printed", "ours", "seeds"), rows)


def _verdict_rows(one: Verdict, scale: str) -> Iterator[Row]:
    source = f"{one.claim.paper.upper()}, {one.claim.table}"
    yield (Entry(f"{one.verdict}: {_sentence(one)}", "; ".join(filter(None, (one.why, source, one.claim.note)))),)
    for number, step in enumerate(steps_of(one) if one.seeds else []):
        ours = Entry(_estimate(one, step), _arms(one, number))
        yield (step.name, _number(one, step.printed), ours, str(one.languages), str(one.seeds), scale or "-")


def _sentence(one: Verdict) -> str:
    return one.claim.says[0].upper() + one.claim.says[1:]


def _estimate(one: Verdict, step: Step) -> str:
    if step.estimate is None:
        return "-"
    ends = f" [{', '.join(_number(one, end).lstrip('+') for end in step.interval)}]" if step.interval else ""
    return _number(one, step.estimate) + ends


def _arms(one: Verdict, number: int) -> str:
    """The scores that a difference is of."""
    of = one.ours[number : number + 2]
    return " less ".join(show_average(one) for one in of)


def _number(one: Verdict, value: float) -> str:
    return f"{value:+.2f}" if isinstance(one.claim, Correlation) else f"{round(value, 1) + 0.0:+.1f}"


def _cell_table(one: ComparedTable) -> Table:
    shown = [name for name in one.table.columns if any(values[name][1] for _, values in one.rows)]
    kept = [(row, values) for row, values in one.rows if _is_shown(row, values, shown)]
    rows, last = list[Row](), ""
    for row, values in kept:
        rows += [(Entry(row.section),)] if row.section and row.section != last else []
        last = row.section
        rows.append(_cell_row(row, [values[name] for name in shown]))
    header = ("", *(name.replace("_", " ") for name in shown), "seeds", "scale")
    note = " ".join(_explain(one, kept, shown))
    return Table(f"{one.paper.upper()}, {one.name}: {one.table.caption}", header, rows, note, link=CELLS)


def _is_shown(row: PrintedRow, values: Cells, columns: Sequence[str]) -> bool:
    own = [values[name] for name in columns]
    return any(ours for _, ours in own) or (bool(row.quoted) and any(cell.value is not None for cell, _ in own))


def _cell_row(row: PrintedRow, values: Sequence[tuple[PrintedCell, Ours | None]]) -> Row:
    found = [ours for _, ours in values if ours]
    seeds, scales = sorted({ours.seeds for ours in found}), dict.fromkeys(ours.scale for ours in found if ours.scale)
    name = Entry(row.name, f"quoted from {row.quoted}" if row.quoted else "", "" if found else "quiet")
    return (name, *(_entry(*one) for one in values), _from_to(seeds) or "-", ", ".join(scales) or "-")


def _entry(cell: PrintedCell, ours: Ours | None) -> Entry:
    if cell.value is None:
        return NONE
    return Entry(_printed(cell), _reached(cell, ours) if ours else "", "" if ours else "quiet")


def _printed(cell: PrintedCell) -> str:
    assert cell.value is not None
    spread = "" if cell.deviation is None else f" {PLUS_MINUS} {cell.deviation:.1f}"
    return f"{cell.value:.1f}{spread}" + ("" if cell.computed is None else f" / {cell.computed:.1f}")


def _reached(cell: PrintedCell, ours: Ours) -> str:
    return f"{show_average(ours.average)} ({round(ours.above(cell), 1) + 0.0:+.1f})"


def _explain(one: ComparedTable, kept: Sequence[tuple[PrintedRow, Cells]], shown: Sequence[str]) -> Iterator[str]:
    """How to read a table, as far as it applies."""
    both = [values[name] for _, values in kept for name in shown]
    yield f"In each cell what is printed and, below it, ours {PLUS_MINUS} deviation over seeds with the difference."
    if any(cell.computed is not None for cell, _ in both):
        yield "a / b: printed, and what follows from the other printed numbers; the difference is from b."
    if any(row.quoted for row, _ in kept):
        yield "Quoted: the paper repeats these numbers of others."
    means = {ours.languages for _, ours in both if ours and ours.quantity.language in ("", ZERO_SHOT)}
    if means:
        count = _from_to(sorted({len(languages) for languages in means}))
        named = ", ".join(next(iter(means))) if len(means) == 1 and count != "1" else f"{count} (named in {CELLS})"
        yield f"Means of ours are over our languages: {named}."
    if left := len(one.rows) - len(kept):
        yield f"{left} row{'s' * (left > 1)} of print whose arms have no score here: only in {CELLS}."
    if one.table.notes:
        yield f"Of the print: {'; '.join(one.table.notes)}."


def _from_to(numbers: Sequence[int]) -> str:
    return " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1])))) if numbers else ""


def _terminal_cells(one: ComparedTable) -> list[list[str]]:
    rows = [
        [f"  {row.shown} {name.replace('_', ' ')}", _printed(cell), _reached(cell, ours), str(ours.seeds)]
        for row, values in one.rows
        for name, (cell, ours) in values.items()
        if ours
    ]
    return [[one.name, *[""] * 3], *rows]


def _terminal_claim(one: Verdict) -> Iterator[list[str]]:
    yield [_sentence(one), *[""] * 3]
    said = f"  {one.verdict}{f': {one.why}' if one.why else ''}"
    for number, step in enumerate(steps_of(one)):
        numbers = [_number(one, step.printed), _estimate(one, step), str(one.seeds)] if one.seeds else [""] * 3
        if number == 0 or one.seeds:
            yield [said if number == 0 else "", *numbers]


def _draw(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> rich.table.Table:
    drawn = rich.table.Table(title=Text(title), box=rich.box.SIMPLE_HEAD, title_justify="left")
    drawn.add_column(header[0], overflow="fold")
    for heading in header[1:]:
        drawn.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        drawn.add_row(*map(Text, row))
    return drawn
