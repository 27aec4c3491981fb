"""The verb `report`: one page on runs and studies, its figures and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from xalign_ray.config.explain import flatten
from xalign_ray.errors import ConfigError, LockError
from xalign_ray.results import charts, claims, continued, report_tables, score_charts, tables
from xalign_ray.results.aggregate import as_csv
from xalign_ray.results.bundle import ReportNumbers, is_bundle, report_numbers, write_bundle
from xalign_ray.results.compare import SCORE_COLUMNS
from xalign_ray.results.finding import declared_metric, find
from xalign_ray.results.page import PAGE, Section, base_sections, run_sections, write_html
from xalign_ray.results.paired import paired_table, with_bases
from xalign_ray.results.run import Run, as_published, columns_of, label_runs
from xalign_ray.results.sources import check_names, find_runs, is_foreign
from xalign_ray.work.artifacts import write_atomic
from xalign_ray.work.job import open_job
from xalign_ray.work.mirror import local_folder
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import hide_places, shown_path

_FILES = ("comparison.csv", "scores.csv", "losses.csv", "layers.csv", "costs.csv")
_AT_TIMES = {claims.CELLS, claims.CLAIMS, *(f"{name}.svg" for name in charts.NAMES)}


def report(
    names: Sequence[str],
    out: Path | None = None,
    by: Sequence[str] = (),
    baseline: str | None = None,
    bundle: Path | None = None,
) -> Path:
    """One page on a run or study (inside its folder) or on several compared.

    Args:
        names: folders of runs or studies, bundles, CSV files of scores.
        out: folder of the report.
        by: groupings, the first one for the terminal; all that are possible if none are given.
        baseline: label of the column that the others are compared with; the study's, or the first one's if None.
        bundle: a file for everything that the numbers rest on, which `verify_bundle` computes again.

    Returns:
        The page.

    Raises:
        ConfigError: there is no such folder, the baseline is none of the labels, or a grouping cannot be made.
        DataError: a folder is no run, or a file is damaged.
    """
    alone = len(names) == 1 and not is_foreign(local_folder(names[0]))
    target = local_folder(out or (local_folder(names[0]) / "report" if alone else "report"))
    check_names(names)
    if bundle and bundle.is_dir():
        raise ConfigError(f"--bundle {shown_path(bundle)} is a folder; name a file, such as results.zip.")
    if bundle and bundle.is_file() and not is_bundle(bundle):
        raise ConfigError(f"--bundle {shown_path(bundle)} is there, and is no bundle. Name another file.")
    _check_kept(names, target)
    say(f"Reading {', '.join(names)}.")
    runs, baseline = as_published(label_runs(with_bases(find_runs(names)))), hide_places(baseline)
    try:
        with open_job(target, "report", waits=False, with_run=True):
            numbers = write_report(runs, target, by, baseline)
            if bundle:
                write_bundle(bundle, runs, numbers, by, baseline)
                values = (value for run in runs for value in (*flatten(run.config).values(), *run.scores.encoder))
                if outside := sorted({value for value in values if isinstance(value, str) and value.startswith("/")}):
                    say(f"{shown_path(bundle)} names places outside this folder and your home: {', '.join(outside)}.")
    except LockError as locked:
        raise LockError(f"{locked} Or write the report into another folder: --out FOLDER.") from None
    comparison, judged = numbers.comparison, numbers.papers.claims
    shown = [paired_table(runs, comparison.baseline)] if len(columns_of(runs)) > 2 else []
    shown += [report_tables.terminal_table(comparison, comparison.by[0])]
    for table in (*shown, claims.claim_table(judged.loc[judged.seeds > 0])):
        if table and table.rows:
            Console(stderr=True).print(tables.plain_grid(table))
    return target / PAGE


def write_report(runs: Sequence[Run], out: Path, by: Sequence[str] = (), baseline: str | None = None) -> ReportNumbers:
    """Writes index.html, the frames scores.csv, losses.csv, layers.csv, costs.csv and comparison.csv, and figures.

    Where arms have a paper's labels, papers.csv and claims.csv as well, and a part of the page. Runs of one label are
    one column: mean and spread. The page needs no network and no other file to be read.
    Removes files of an earlier report that this one does not write.

    Args:
        runs: labelled, as others may read of them.
        by, baseline: as in `report`.
    """
    numbers, losses = report_numbers(runs, by, baseline), charts.loss_frame(runs)
    scores, comparison, papers, costs = numbers
    finding = find(comparison, declared_metric(runs))
    headline = score_charts.score_chart(comparison, finding.key) if finding.key else None
    bases = {run.label: base for run in runs if run.on_disk and (base := continued.read_continued(run.folder))}
    paired = paired_table(runs, comparison.baseline) if len(bases) > 1 else None
    sections = [
        Section("pairs", "The same test", [paired], is_open=True),
        *base_sections(bases),
        *(
            Section(
                name,
                tables.SUBJECTS[name],
                [
                    report_tables.decided_table(comparison) if name == "task" else None,
                    tables.score_table(comparison, name),
                    report_tables.cost_table(runs, costs) if name == "task" and len(comparison.frame) else None,
                ],
                is_open=name == "task",
            )
            for name in comparison.by
        ),
        Section(
            "papers",
            "Against the papers",
            [claims.claim_table(papers.claims), claims.cell_table(papers.cells)],
            notes=claims.citations(papers.papers),
            is_open=True,
        ),
        Section("sizes", "By size", charts=[score_charts.size_chart(comparison)], is_open=True),
        *run_sections(runs, losses, score_charts.layer_chart(runs, scores), report_tables.rates_tables(runs)),
    ]
    layers = scores.loc[scores.single_layer].reindex(columns=SCORE_COLUMNS)
    files = numbers.files | {"layers.csv": layers, "losses.csv": losses}
    for name, frame in files.items():
        write_atomic(out / name, as_csv(frame))
    written = write_html(runs, out, headline, sections, [*_FILES, *papers.files], bases, finding)
    for name in _AT_TIMES.difference(files, written):
        (out / name).unlink(missing_ok=True)
    return numbers


def _check_kept(names: Sequence[str], out: Path) -> None:
    """Raises ConfigError where a file that the report reads is one that it writes."""
    written = {(out / name).resolve() for name in (PAGE, *_FILES, *_AT_TIMES)}
    if read := next((name for name in names if local_folder(name).resolve() in written), None):
        raise ConfigError(
            f"{shown_path(Path(read))} is read, and the report would be written in its place. Name another folder by "
            "--out."
        )
