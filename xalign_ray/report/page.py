"""Sets the page: the finding and its chart, how to read it, tables, curves and recipes, in one HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import yaml
from markupsafe import Markup

from xalign_ray.artifacts import hash_value
from xalign_ray.report.columns import Column
from xalign_ray.report.compare import Comparison
from xalign_ray.report.figures import RESTARTED, Chart, draw_svgs, legend
from xalign_ray.report.finding import Finding
from xalign_ray.report.reading import caveats, how_to_read
from xalign_ray.report.run_tables import data_tables, difference_table, run_table, study_tables
from xalign_ray.report.score_tables import gap_table, score_table
from xalign_ray.report.table import Table
from xalign_ray.report.templates import ENVIRONMENT

_GROUPINGS = {
    "task": ("scores", "Scores"),
    "language": ("languages", "Languages"),
    "family": ("families", "Families"),
    "size": ("sizes", "Wikipedia sizes"),
    "dictionary": ("dictionaries", "Dictionaries"),
}
_MAX_NARROW = 6  # encoders whose numbers fit beside each other in a column of text


@dataclass(frozen=True)
class Section:
    """A part of the page that the links at the top lead to; one without tables and charts is left out.

    Attributes:
        name, title: in a link and above it.
        tables, charts, notes: one after the other.
        folded: a table that opens on a click, under its title.
        recipes: YAML by label, which open on a click.
    """

    name: str
    title: str
    tables: Sequence[Table | None] = ()
    charts: Sequence[Chart] = ()
    notes: Sequence[str] = ()
    folded: Table | None = None
    recipes: Sequence[tuple[str, str]] = ()

    @property
    def shown(self) -> list[Table]:
        """Tables with something in them."""
        return [table for table in self.tables if table is not None and (table.rows or table.note)]


def write_page(
    columns: Sequence[Column],
    comparison: Comparison,
    finding: Finding,
    headline: Chart | None,
    charts: Sequence[Chart],
    repetitions: Sequence[str],
) -> str:
    """The whole page.

    Args:
        columns: what is compared, or one.
        comparison: of their scores.
        finding: what it opens with.
        headline: the chart of that.
        charts: of losses and layers.
        repetitions: what is to be said of runs that repeat another's seed.
    """
    sections = list(_sections(columns, comparison, charts, repetitions))
    guessed = [f"Nothing is above chance on: {'; '.join(finding.at_chance)}."] if finding.at_chance else []
    return ENVIRONMENT.get_template("page.html").render(
        title=title_of(columns),
        notes=list(dict.fromkeys(run.study.notes for column in columns for run in column.runs if run.study)),
        lead=_lead(columns),
        wide=len(columns) > _MAX_NARROW,
        finding=finding.sentence,
        headline=headline,
        caveats=[*guessed, *caveats(columns)],
        reading=how_to_read(columns),
        sections=[one for one in sections if one.shown or one.charts or one.recipes],
        svgs=lambda chart: [Markup(svg) for svg in draw_svgs(chart)],
        legend=legend,
        restarted=RESTARTED,
    )


def title_of(columns: Sequence[Column]) -> str:
    """What a report is called."""
    studies = list(dict.fromkeys(run.study.name for column in columns for run in column.runs if run.study))
    if studies:
        return " / ".join(studies)
    return " / ".join(column.label for column in columns) if len(columns) <= 4 else f"{len(columns)} recipes compared"


def _sections(
    columns: Sequence[Column], comparison: Comparison, charts: Sequence[Chart], repetitions: Sequence[str]
) -> Iterator[Section]:
    several = any(len(column.runs) > 1 for column in columns)
    for by in comparison.by:
        folded = gap_table(comparison) if by == "task" and several else None
        yield Section(*_GROUPINGS[by], [score_table(comparison, by)], folded=folded)
    losses = [chart for chart in charts if chart.axis == "step"]
    yield Section("losses", "Losses", charts=losses, notes=repetitions)
    yield Section("layers", "Layers", charts=[chart for chart in charts if chart not in losses])
    yield Section("data", "Data", data_tables(columns))
    recipes = [
        (column.label, yaml.safe_dump(dict(column.runs[0].config), sort_keys=False, allow_unicode=True))
        for column in columns
        if column.runs[0].config
    ]
    yield Section("recipes", "Recipes", [difference_table(columns)], recipes=recipes)
    yield Section("running", "Running", [*study_tables(columns), run_table(columns)])


def _lead(columns: Sequence[Column]) -> str:
    runs = sum(len(column.runs) for column in columns)
    recipes = len({hash_value([column.settings or column.label]) for column in columns})
    return f"{runs} run{'s' if runs > 1 else ''} of {recipes} recipe{'s' if recipes > 1 else ''}."
