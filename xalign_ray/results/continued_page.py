"""Page of one continued run: its base against it, its losses, its data and recipe."""

from __future__ import annotations

from pathlib import Path

from xalign_ray.results.aggregate import as_csv
from xalign_ray.results.charts import held_out_chart, loss_frame, retrieval_chart, training_chart
from xalign_ray.results.continued import (
    Continued,
    kept_sentence,
    of_comparison,
    origin_sentence,
    read_continued,
    sentence,
)
from xalign_ray.results.continued_chart import change_chart
from xalign_ray.results.page import ReportPage, Section, links_of, recipes_of
from xalign_ray.results.run import as_published, label_runs, read_run
from xalign_ray.results.sentences import caveats, how_to_read, origins
from xalign_ray.results.tables import data_tables, run_table, values_table
from xalign_ray.work.artifacts import write_atomic
from xalign_ray.work.job import open_job
from xalign_ray.work.run_folder import RunFolder
from xalign_ray.work.storage import hide_places


def write_page(folder: Path) -> None:
    """Writes the page into the run's folder; `xalign report` adds other scores and other runs."""
    comparison, out = read_continued(folder), RunFolder(folder).report
    assert comparison is not None, "a finished run has been compared"
    runs = as_published(label_runs([read_run(folder)]))
    losses = loss_frame(runs)
    page = ReportPage(
        title=runs[0].label,
        finding=sentence(comparison),
        detail=kept_sentence(comparison) or " ".join(comparison.notes),
        notes=[origin_sentence(comparison)],
        caveats=caveats(runs),
        links=links_of(runs[0], out),
        headline=change_chart(comparison),
        reading=how_to_read(runs),
        sections=[
            base_section(comparison),
            Section("retrieval", "Retrieval", charts=[retrieval_chart(runs, losses)]),
            Section("losses", "Losses", charts=[training_chart(runs, losses), held_out_chart(runs, losses)]),
            Section("data", "Data", data_tables(runs)),
            Section("recipes", "Recipe", [values_table(runs)], recipes=recipes_of(runs)),
            Section("running", "Running", [run_table(runs)]),
        ],
        lead="One run.",
        origins=origins(runs, {runs[0].label: hide_places(comparison.command)}),
        files=["losses.csv"],
        columns=1,
    )
    with open_job(out, "report", waits=False, with_run=True):
        write_atomic(out / "losses.csv", as_csv(losses))
        page.write(out)


def base_section(comparison: Continued) -> Section:
    """The part of a page that has the tables of a comparison."""
    return Section(
        "base",
        "Base against yours",
        [*of_comparison(comparison)],
        notes=hide_places(comparison.notes),
        is_open=True,
    )
