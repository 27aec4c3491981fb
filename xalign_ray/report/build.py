"""Writes the report of one run or of several compared: a page, its figures and the numbers beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd
import rich.table

from xalign_ray.artifacts import write_atomic
from xalign_ray.errors import ConfigError
from xalign_ray.report.charts import charts_of, score_chart
from xalign_ray.report.columns import Column, group_runs
from xalign_ray.report.compare import COLUMNS, Comparison, compare
from xalign_ray.report.figures import draw_png
from xalign_ray.report.finding import find
from xalign_ray.report.frames import keep, loss_frame, score_frame, scores_of, seeds_of
from xalign_ray.report.groups import Background, known_groupings
from xalign_ray.report.page import write_page
from xalign_ray.report.reproducibility import reproducibility_notes
from xalign_ray.report.run import Run
from xalign_ray.report.score_tables import as_terminal_table, score_table
from xalign_ray.report.templates import ENVIRONMENT
from xalign_ray.report.trials import join_trials

_ALWAYS = ("task", "language")
_OF_FINDING = ("task", "language", "family")


@dataclass(frozen=True)
class ReportFiles:
    """What a report consists of, its figures apart: PNGs beside the page."""

    page: Path
    scores: Path
    losses: Path
    layers: Path
    comparison: Path
    markdown: Path


@dataclass(frozen=True)
class Chosen:
    """What a report is asked to show of its runs.

    Attributes:
        labels: a label for each run, instead of the recipes' names; runs of one label are one column.
        baseline: label of the column that the others are compared with; the study's, or the first one's if None.
        by: groupings of languages, see `compare`; all that are possible if there are none.
        sizes: of Wikipedias in megabytes, for the grouping by size.
    """

    labels: Sequence[str] | None = None
    baseline: str | None = None
    by: Sequence[str] = ()
    sizes: Mapping[str, float] = field(default_factory=dict)


def report(runs: Sequence[Run], out: Path, chosen: Chosen = Chosen()) -> tuple[ReportFiles, rich.table.Table]:
    """Writes index.html, the frames scores.csv, losses.csv, layers.csv and comparison.csv, comparison.md, and figures.

    Runs of one recipe that differ only in their seed are one column: mean and spread. The page is whole in itself: no
    network, no file beside it is needed to read it.

    Args:
        runs: finished or not, or only scores of some other encoder.
        out: folder of the report; created if needed.
        chosen: labels, baseline and groupings.

    Returns:
        The files, and the first grouping of the comparison for the terminal.

    Raises:
        ConfigError: no run is given, the baseline is none of the labels, or a grouping cannot be made.
    """
    columns = open_columns(runs, chosen.labels)
    comparison = compare_columns(columns, chosen)
    found, repetitions = find(comparison), reproducibility_notes(columns)
    headline = score_chart(comparison, found.key) if found.key else None
    charts = list(charts_of(columns, bool(repetitions)))
    page = write_page(columns, comparison, found, headline, charts, repetitions)
    names = ("index.html", "scores.csv", "losses.csv", "layers.csv", "comparison.csv", "comparison.md")
    files = ReportFiles(*(out / name for name in names))
    scores = score_frame({column.label: scores_of(column) for column in columns})
    _write_csv(files.scores, scores)
    _write_csv(files.layers, score_frame({column.label: scores_of(column, numbered=True) for column in columns}))
    _write_csv(files.losses, loss_frame(columns))
    write_comparison(comparison, files.comparison, files.markdown)
    for chart in [headline, *charts]:
        if chart is not None:
            write_atomic(out / f"{chart.name}.png", draw_png(chart))
    write_atomic(files.page, page)
    return files, as_terminal_table(comparison)


def open_columns(runs: Sequence[Run], labels: Sequence[str] | None = None) -> list[Column]:
    """Groups runs into columns, fine-tuned trials with the runs that they began from."""
    if not runs:
        raise ConfigError("A report needs at least one run.")
    if labels:
        return group_runs([replace(run, label=label) for run, label in zip(runs, labels, strict=True)])
    return group_runs(join_trials(runs))


def compare_columns(columns: Sequence[Column], chosen: Chosen = Chosen()) -> Comparison:
    """The columns' scores compared, by all groupings that are possible if none are asked for."""
    dictionaries = {
        column.label: frozenset[str]().union(*(run.dictionary_languages for run in column.runs)) for column in columns
    }
    background = Background(chosen.sizes, dictionaries, seeds_of(columns))
    scores = {column.label: scores_of(column, numbered=False) for column in columns}
    shown = chosen.by or known_groupings(background)
    baseline = chosen.baseline or _baseline_of_study(columns)
    whole = compare(scores, baseline, list(dict.fromkeys([*shown, *_OF_FINDING])), background)
    # What nobody asked for is left out where its one group says what the mean over all languages says.
    kept = [by for by in shown if chosen.by or by in _ALWAYS or _has_several_groups(whole, by)]
    return replace(whole, by=tuple(kept))


def write_comparison(comparison: Comparison, table: Path, markdown: Path) -> None:
    """Writes every number as CSV, in [0, 1] for shares, and the tables as Markdown, in percent."""
    shown = pd.concat([keep(comparison.frame, comparison.frame.by == by) for by in comparison.by])
    _write_csv(table, shown.reindex(columns=COLUMNS))
    tables = [score_table(comparison, by) for by in comparison.by]
    write_atomic(markdown, ENVIRONMENT.get_template("tables.md").render(tables=[one for one in tables if one.rows]))


def _write_csv(path: Path, frame: pd.DataFrame) -> None:
    write_atomic(path, frame.to_csv(index=False, lineterminator="\n"))


def _baseline_of_study(columns: Sequence[Column]) -> str | None:
    """The baseline of the first study that names one, as its column is labelled here."""
    for run in (run for column in columns for run in column.runs if run.study):
        for column in columns:
            if run.study and run.study.baseline in (column.label, column.label.removesuffix(f" ({run.study.name})")):
                return column.label
    return None


def _has_several_groups(comparison: Comparison, by: str) -> bool:
    metrics = [
        (cell["metric"], cell["split"], cell["layer"], cell["pooling"], cell["group"])
        for cell in comparison.records(by)
    ]
    return len({one[:4] for one in metrics}) < len(set(metrics))
