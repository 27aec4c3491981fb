"""The verb `report`: one page on runs, studies and MLflow experiments, inside the folder of one or beside several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from xalign_ray.report.groups import read_sizes
from xalign_ray.report.page import report as write_report
from xalign_ray.report.sources import MLFLOW, find_runs
from xalign_ray.track.follower import resolve_uri


def report(
    runs: Sequence[str],
    out: Path | None = None,
    by: Sequence[str] = (),
    sizes: Path | None = None,
    baseline: str | None = None,
    tracking: str = "sqlite",
) -> Path:
    """One page on a run or study (inside its folder) or on several compared.

    Args:
        runs: folders of runs or studies, `mlflow:EXPERIMENT`, `mlflow:RUN_ID`.
        out: folder of the report.
        by: groupings, the first one for the terminal; all that are possible if none are given.
        sizes: a CSV file with the size of each language's Wikipedia.
        baseline: label of the column that the others are compared with, the first if None.
        tracking: where MLflow is, as `track.mlflow` in a recipe; `sqlite` is runs/mlflow.db.

    Returns:
        The page.
    """
    alone = len(runs) == 1 and not runs[0].startswith(MLFLOW)
    target = out or (Path(runs[0]) / "report" if alone else Path("report"))
    found = find_runs(runs, resolve_uri(tracking, Path("runs")))
    page, table = write_report(found, target, by, read_sizes(sizes) if sizes else {}, baseline)
    if table.row_count:
        Console(stderr=True).print(table)
    return page
