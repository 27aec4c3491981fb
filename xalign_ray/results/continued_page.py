"""Page of one continued run: its base against it, its losses, its data and recipe."""

from __future__ import annotations

from pathlib import Path

from xalign_ray.results.aggregate import as_csv
from xalign_ray.results.charts import loss_frame
from xalign_ray.results.continued import read_continued
from xalign_ray.results.continued_chart import change_chart
from xalign_ray.results.page import base_sections, run_sections, write_html
from xalign_ray.results.run import as_published, label_runs, read_run
from xalign_ray.work.artifacts import write_atomic
from xalign_ray.work.job import open_job
from xalign_ray.work.run_folder import RunFolder


def write_page(folder: Path) -> None:
    """Writes the page into the run's folder; `xalign report` adds other scores and other runs."""
    comparison, out = read_continued(folder), RunFolder(folder).report
    assert comparison is not None, "a finished run has been compared"
    runs = as_published(label_runs([read_run(folder)]))
    losses, bases = loss_frame(runs), {runs[0].label: comparison}
    sections = [*base_sections(bases), *run_sections(runs, losses)]
    with open_job(out, "report", waits=False, with_run=True):
        write_atomic(out / "losses.csv", as_csv(losses))
        write_html(runs, out, change_chart(comparison), sections, ["losses.csv"], bases)
