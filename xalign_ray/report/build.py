"""Writes the report of one run or of several compared: a page and the numbers beside it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import rich.table

from xalign_ray.artifacts import write_atomic
from xalign_ray.config.explain import suggest
from xalign_ray.errors import ConfigError
from xalign_ray.report.columns import Column, group_runs
from xalign_ray.report.curves import loss_points
from xalign_ray.report.numbers import is_at_chance
from xalign_ray.report.page import write_page
from xalign_ray.report.run import Run, read_run
from xalign_ray.report.score_tables import narrow_table
from xalign_ray.report.table import as_rich
from xalign_ray.tasks.scores import Score

_SCORE_FIELDS = [field.name for field in fields(Score)]


@dataclass(frozen=True)
class ReportFiles:
    """What a report consists of."""

    page: Path
    scores: Path
    losses: Path
    layers: Path


def report(
    runs: Sequence[Path], out: Path, labels: Sequence[str] | None = None, baseline: str | None = None
) -> ReportFiles:
    """Writes index.html, scores.csv, losses.csv and layers.csv.

    Runs of one recipe that differ only in their seed are one column: mean and spread. The page is whole in itself: no
    network, no file beside it is needed to read it.

    Args:
        runs: run folders, finished or not, or folders that hold only scores.json of some other encoder.
        out: folder of the report; created if needed.
        labels: a label for each run, instead of the recipes' names; runs of one label are one column.
        baseline: label of the column that the others are compared with, the first one's if None.

    Raises:
        DataError: a folder is no run, or a file of it is damaged.
        ConfigError: no run is given, or the baseline is none of the labels.
    """
    columns = open_columns(runs, labels)
    page = write_page(columns, _find(columns, baseline), _title(columns))
    files = ReportFiles(out / "index.html", out / "scores.csv", out / "losses.csv", out / "layers.csv")
    write_atomic(files.scores, _csv(["label", *_SCORE_FIELDS, "at_chance"], _score_rows(columns)))
    write_atomic(files.losses, _csv(["label", "run", "seed", "series", "language", "step", "value"], _losses(columns)))
    layers = (row for row in _score_rows(columns) if isinstance(row["layer"], int))
    write_atomic(files.layers, _csv(["label", *_SCORE_FIELDS, "at_chance"], layers))
    write_atomic(files.page, page)
    return files


def summary_table(runs: Sequence[Path], labels: Sequence[str] | None = None) -> rich.table.Table:
    """The headline scores for the terminal, one row a metric and recipe."""
    return as_rich(narrow_table(open_columns(runs, labels)))


def open_columns(runs: Sequence[Path], labels: Sequence[str] | None = None) -> list[Column]:
    """Reads runs and groups them into columns."""
    if not runs:
        raise ConfigError("A report needs at least one run folder.")
    return group_runs([read_run(run) for run in runs], labels)


def _find(columns: Sequence[Column], baseline: str | None) -> Column:
    by_label = {column.label: column for column in columns}
    if baseline is None:
        return columns[0]
    if baseline not in by_label:
        raise ConfigError(
            f"The baseline '{baseline}' is none of the compared recipes.{suggest(baseline, by_label)} "
            f"They are {', '.join(by_label)}."
        )
    return by_label[baseline]


def _title(columns: Sequence[Column]) -> str:
    return " / ".join(column.label for column in columns) if len(columns) <= 4 else f"{len(columns)} recipes compared"


def _score_rows(columns: Sequence[Column]) -> Iterable[dict[str, Any]]:
    for column in columns:
        for run in column.runs:
            for score in run.scores:
                known = score.chance is not None
                at_chance = is_at_chance(score.value, score.chance, score.n) if known else None  # type: ignore[arg-type]
                yield {"label": column.label, **asdict(score), "run": _name(run), "at_chance": at_chance}


def _losses(columns: Sequence[Column]) -> Iterable[dict[str, Any]]:
    for column in columns:
        for run in column.runs:
            for point in loss_points(run):
                yield {"label": column.label, "run": _name(run), "seed": run.seed, **asdict(point)}


def _name(run: Run) -> str:
    return run.folder.resolve().name


def _csv(header: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
