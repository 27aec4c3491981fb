"""Writes the report of one run or of several compared: a page and the numbers beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import rich.table

from xalign_ray.artifacts import write_atomic
from xalign_ray.errors import ConfigError
from xalign_ray.report.columns import Column, group_runs
from xalign_ray.report.compare import Comparison, compare
from xalign_ray.report.comparison_files import ComparisonFiles, csv_text, write_comparison
from xalign_ray.report.curves import LossPoint, loss_points
from xalign_ray.report.groups import Background, known_groupings
from xalign_ray.report.numbers import is_at_chance, scores_of, seeds_of
from xalign_ray.report.page import write_page
from xalign_ray.report.run import Run
from xalign_ray.report.score_tables import as_terminal_table
from xalign_ray.report.trials import join_trials
from xalign_ray.tasks.scores import Score

_SCORE_FIELDS = [known.name for known in fields(Score)]
_POINT_FIELDS = [known.name for known in fields(LossPoint)]
_ALWAYS = ("task", "language")


@dataclass(frozen=True)
class ReportFiles:
    """What a report consists of."""

    page: Path
    scores: Path
    losses: Path
    layers: Path
    comparison: ComparisonFiles


@dataclass(frozen=True)
class Chosen:
    """What a report is asked to show of its runs.

    Attributes:
        labels: a label for each run, instead of the recipes' names; runs of one label are one column.
        baseline: label of the column that the others are compared with, the first one's if None.
        by: groupings of languages, see `compare`; all that are possible if there are none.
        sizes: of Wikipedias in megabytes, for the grouping by size.
    """

    labels: Sequence[str] | None = None
    baseline: str | None = None
    by: Sequence[str] = ()
    sizes: Mapping[str, float] = field(default_factory=dict)


def report(runs: Sequence[Run], out: Path, chosen: Chosen = Chosen()) -> tuple[ReportFiles, rich.table.Table]:
    """Writes index.html, scores.csv, losses.csv, layers.csv, comparison.csv and comparison.md.

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
    page = write_page(columns, comparison, _title(columns))
    compared = write_comparison(comparison, out)
    files = ReportFiles(out / "index.html", out / "scores.csv", out / "losses.csv", out / "layers.csv", compared)
    write_atomic(files.scores, csv_text(["label", *_SCORE_FIELDS, "at_chance"], _score_rows(columns)))
    write_atomic(files.losses, csv_text(["label", "run", "seed", *_POINT_FIELDS], _losses(columns)))
    layers = (row for row in _score_rows(columns) if isinstance(row["layer"], int))
    write_atomic(files.layers, csv_text(["label", *_SCORE_FIELDS, "at_chance"], layers))
    write_atomic(files.page, page)
    return files, as_terminal_table(comparison)


def open_columns(runs: Sequence[Run], labels: Sequence[str] | None = None) -> list[Column]:
    """Groups runs into columns, fine-tuned trials with the runs that they began from."""
    if not runs:
        raise ConfigError("A report needs at least one run.")
    return group_runs(runs if labels else join_trials(runs), labels)


def compare_columns(columns: Sequence[Column], chosen: Chosen = Chosen()) -> Comparison:
    """The columns' scores compared, by all groupings that are possible if none are asked for."""
    dictionaries = {
        column.label: frozenset[str]().union(*(run.dictionary_languages for run in column.runs)) for column in columns
    }
    background = Background(chosen.sizes, dictionaries, seeds_of(columns))
    scores = {column.label: scores_of(column) for column in columns}
    if chosen.by:
        return compare(scores, chosen.baseline, chosen.by, background)
    return _without_single_groups(compare(scores, chosen.baseline, known_groupings(background), background))


def _without_single_groups(comparison: Comparison) -> Comparison:
    """Leaves out what nobody asked for: groupings whose one group says what the mean over all languages says."""
    kept = {
        by: rows
        for by, rows in comparison.groupings.items()
        if by in _ALWAYS or len({row.key for row in rows}) < len(rows)
    }
    return replace(comparison, groupings=kept)


def _title(columns: Sequence[Column]) -> str:
    return " / ".join(column.label for column in columns) if len(columns) <= 4 else f"{len(columns)} recipes compared"


def _score_rows(columns: Sequence[Column]) -> Iterable[dict[str, Any]]:
    for column in columns:
        for run in column.runs:
            for score in run.scores:
                known = score.chance is not None
                at_chance = is_at_chance(score.value, score.chance, score.n) if known else None  # type: ignore[arg-type]
                yield {"label": column.label, **asdict(score), "run": run.name, "at_chance": at_chance}


def _losses(columns: Sequence[Column]) -> Iterable[dict[str, Any]]:
    for column in columns:
        for run in column.runs:
            for point in loss_points(run):
                yield {"label": column.label, "run": run.name, "seed": run.seed, **asdict(point)}
