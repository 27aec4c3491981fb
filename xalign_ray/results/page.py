"""Page of a report: tables, charts and text in one HTML file, which needs no network and no other file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd
import yaml

from xalign_ray.results import charts
from xalign_ray.results.charts import Chart
from xalign_ray.results.continued import Continued, kept_sentence, of_comparison, origin_sentence, sentence
from xalign_ray.results.run import Run, columns_of, studies_of
from xalign_ray.results.sentences import ENVIRONMENT, Finding, caveats, how_to_read, origins
from xalign_ray.results.tables import Table, data_tables, run_table, values_table
from xalign_ray.work.artifacts import write_atomic
from xalign_ray.work.run_folder import CARD, RunFolder
from xalign_ray.work.storage import hide_places

PAGE = "index.html"
_MAX_NARROW = 6  # encoders whose numbers fit beside each other in a column of text
_MAX_IN_TITLE = 4  # encoders


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


def write_html(
    runs: Sequence[Run],
    out: Path,
    headline: Chart | None,
    sections: Sequence[Section],
    files: Sequence[str],
    bases: Mapping[str, Continued],
    finding: Finding = Finding(""),
) -> set[str]:
    """Writes a page and each of its charts as SVG; returns the names of these files.

    Args:
        runs: labelled, as others may read of them.
        headline: the chart below the finding.
        sections: the parts of the page; those without a table, chart or text are left out.
        files: names of files with its numbers, beside the page.
        bases: of runs that were continued, the comparison with the base by label.
        finding: of several encoders; a page on one continued run and its base opens with what that gained.
    """
    parts = [
        replace(
            part,
            tables=[table for table in part.tables if table and (table.rows or table.note)],
            charts=[*filter(None, part.charts)],
        )
        for part in sections
    ]
    shown = [part for part in parts if part.tables or part.charts or part.notes or part.recipes]
    columns, notes = columns_of(runs), [study["notes"] for study in studies_of(runs).values() if study.get("notes")]
    only = next(iter(bases.values())) if len(bases) == 1 and len(columns) <= 2 else None
    if only:
        finding = Finding(sentence(only), kept_sentence(only) or " ".join(only.notes), None, finding.at_chance)
        notes.append(origin_sentence(only))
    guessed = [f"Nothing is above chance on: {'; '.join(finding.at_chance)}."] if finding.at_chance else []
    different = len({seeds[0].column or label for label, seeds in columns.items()})
    names = " / ".join(columns) if len(columns) <= _MAX_IN_TITLE else f"{len(columns)} recipes compared"
    folder, links = RunFolder(runs[-1].folder), dict[str, str]()
    if (len(runs) == 1 or only) and runs[-1].on_disk:
        paths = {"the encoder": folder.export, "its model card": folder.export / CARD, "the recipe": folder.config}
        links = {name: os.path.relpath(path, out) for name, path in paths.items() if path.exists()}
    drawn = filter(None, [headline, *(chart for part in shown for chart in part.charts)])
    written = {f"{chart.name}.svg": charts.draw_file(chart) for chart in drawn}
    written[PAGE] = ENVIRONMENT.get_template("page.html").render(
        title=" / ".join(studies_of(runs)) or names,
        notes=dict.fromkeys(notes),
        finding=finding.brief,
        detail=finding.detail,
        caveats=[*guessed, *caveats(runs)],
        links=links,
        headline=headline,
        reading=how_to_read(runs),
        sections=shown,
        lead=f"{len(runs)} run{'s' * (len(runs) > 1)} of {different} recipe{'s' * (different > 1)}.",
        origins=origins(runs, {label: hide_places(base.command) for label, base in bases.items()}),
        files=files,
        wide=len(columns) > _MAX_NARROW,
        draw_svgs=charts.draw_svgs,
        variables=charts.VARIABLES,
        restarted=charts.RESTARTED,
    )
    for name, content in written.items():
        write_atomic(out / name, content)
    return {*written}


def base_sections(bases: Mapping[str, Continued]) -> list[Section]:
    """The parts with the tables of continued runs beside their bases."""
    several = len(bases) > 1
    return [
        Section(
            f"base-{number}",
            f"{base.name} against {label}" if several else "Base against yours",
            [*of_comparison(base)],
            notes=hide_places(base.notes),
            is_open=True,
        )
        for number, (label, base) in enumerate(bases.items())
    ]


def run_sections(
    runs: Sequence[Run], losses: pd.DataFrame, layers: Chart | None = None, rates: Sequence[Table] = ()
) -> list[Section]:
    """The parts on training: retrieval, losses, layers, data, recipes, and how it was run."""
    recipes = {
        label: yaml.safe_dump(dict(seeds[0].config), sort_keys=False, allow_unicode=True)
        for label, seeds in columns_of(runs).items()
        if seeds[0].config
    }
    return [
        Section("retrieval", "Retrieval", charts=[charts.retrieval_chart(runs, losses)]),
        Section("losses", "Losses", charts=[charts.training_chart(runs, losses), charts.held_out_chart(runs, losses)]),
        Section("layers", "Layers", charts=[layers]),
        Section("data", "Data", data_tables(runs)),
        Section("recipes", "Recipes", [values_table(runs)], recipes=recipes),
        Section("running", "Running", [*rates, run_table(runs)]),
    ]
