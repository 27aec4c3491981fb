"""Writes a comparison beside a page: every number as CSV, and its tables as Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xalign_ray.artifacts import write_atomic
from xalign_ray.report.compare import Comparison, GroupCell, Row
from xalign_ray.report.score_tables import score_table
from xalign_ray.report.table import as_markdown

COLUMNS = (
    *("by", "group", "languages", "metric", "split", "layer", "pooling", "label", "mean", "standard_deviation"),
    *("seeds", "n", "chance", "at_chance", "baseline", "difference", "low_95", "high_95"),
    *("difference_languages", "difference_seeds"),
)


@dataclass(frozen=True)
class ComparisonFiles:
    """What a comparison is written to."""

    table: Path
    markdown: Path


def write_comparison(comparison: Comparison, folder: Path) -> ComparisonFiles:
    """Writes comparison.csv, one row a grouping, metric, group and encoder, and comparison.md, a table a grouping.

    Values are as they were scored, in [0, 1] for shares; the Markdown has percent.
    """
    files = ComparisonFiles(folder / "comparison.csv", folder / "comparison.md")
    write_atomic(files.table, csv_text(COLUMNS, _records(comparison)))
    tables = [score_table(comparison, by) for by in comparison.groupings]
    write_atomic(files.markdown, "\n".join(as_markdown(table) for table in tables if table.rows))
    return files


def csv_text(header: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    """Rows as CSV under a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _records(comparison: Comparison) -> Iterable[dict[str, Any]]:
    for by, rows in comparison.groupings.items():
        for row in rows:
            for label, found in row.cells.items():
                named = {"by": by, "label": label, "baseline": comparison.baseline}
                yield named | _key_record(row) | _cell_record(found) | _difference_record(found)


def _key_record(row: Row) -> dict[str, Any]:
    key = row.key
    return {"group": row.group, "metric": key.metric, "split": key.split, "layer": key.layer, "pooling": key.pooling}


def _cell_record(found: GroupCell) -> dict[str, Any]:
    cell = found.cell
    return {
        "languages": " ".join(found.languages),
        "mean": cell.mean,
        "standard_deviation": cell.spread,
        "seeds": len(cell.values),
        "n": cell.n,
        "chance": cell.chance,
        "at_chance": None if cell.chance is None else cell.at_chance,
    }


def _difference_record(found: GroupCell) -> dict[str, Any]:
    if (difference := found.difference) is None:
        return {}
    return {
        "difference": difference.mean,
        "low_95": difference.low,
        "high_95": difference.high,
        "difference_languages": difference.languages,
        "difference_seeds": difference.seeds,
    }
