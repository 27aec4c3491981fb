"""Page of a report: tables, charts and text in one HTML file, which needs no network and no other file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from xalign_ray.results import charts
from xalign_ray.results.charts import Chart
from xalign_ray.results.run import Run, columns_of
from xalign_ray.results.sentences import ENVIRONMENT
from xalign_ray.results.tables import Table
from xalign_ray.work.artifacts import write_atomic
from xalign_ray.work.run_folder import CARD, RunFolder

PAGE = "index.html"
_MAX_NARROW = 6  # encoders whose numbers fit beside each other in a column of text


@dataclass(frozen=True)
class Section:
    """A part of the page that the links at the top lead to; the `recipes` by label open on a click, as do all parts but
    those that a reader came for (`is_open`)."""

    name: str
    title: str
    tables: Sequence[Table | None] = ()
    charts: Sequence[Chart | None] = ()
    notes: Sequence[str] = ()
    recipes: Mapping[str, str] = field(default_factory=dict)
    is_open: bool = False


@dataclass(frozen=True, kw_only=True)
class ReportPage:
    """Content of a page.

    Attributes:
        title: its heading.
        notes: paragraphs below it.
        finding, detail: the first sentence, and the one below.
        caveats: what must be known before the first number is read.
        links: files next to it, by their kind.
        headline: the chart below the finding.
        reading: how to read the numbers.
        sections: its parts; those without a table, chart or text are left out.
        lead, origins: the last line: its runs, and the commands that made them.
        files: files beside the page with its numbers.
        columns: the number of encoders.
    """

    title: str
    finding: str
    detail: str = ""
    notes: Sequence[str] = ()
    caveats: Sequence[str] = ()
    links: Mapping[str, str]
    headline: Chart | None = None
    reading: Sequence[str]
    sections: Sequence[Section]
    lead: str
    origins: Sequence[str]
    files: Sequence[str]
    columns: int

    def write(self, out: Path) -> set[str]:
        """Writes the page and each of its charts as SVG; returns the names of these files."""
        parts = [
            replace(part, tables=without_empty(part.tables), charts=[*filter(None, part.charts)])
            for part in self.sections
        ]
        sections = [part for part in parts if part.tables or part.charts or part.notes or part.recipes]
        drawn = filter(None, [self.headline, *(chart for part in sections for chart in part.charts)])
        files = {f"{chart.name}.svg": charts.draw_file(chart) for chart in drawn}
        files[PAGE] = ENVIRONMENT.get_template("page.html").render(
            vars(self)
            | {
                "sections": sections,
                "wide": self.columns > _MAX_NARROW,
                "draw_svgs": charts.draw_svgs,
                "variables": charts.VARIABLES,
                "restarted": charts.RESTARTED,
            }
        )
        for name, content in files.items():
            write_atomic(out / name, content)
        return {*files}


def without_empty(tables: Sequence[Table | None]) -> list[Table]:
    """The tables that have a row or a note."""
    return [table for table in tables if table and (table.rows or table.note)]


def recipes_of(runs: Sequence[Run]) -> dict[str, str]:
    """The resolved recipe of each label that has one, as YAML."""
    return {
        label: yaml.safe_dump(dict(seeds[0].config), sort_keys=False, allow_unicode=True)
        for label, seeds in columns_of(runs).items()
        if seeds[0].config
    }


def links_of(run: Run, out: Path) -> dict[str, str]:
    """Files next to a run's page, by their kind; relative to the page."""
    folder = RunFolder(run.folder)
    paths = {"the encoder": folder.export, "its model card": folder.export / CARD, "the recipe": folder.config}
    return {name: os.path.relpath(path, out) for name, path in paths.items() if path.exists()}
